"""A trace in the words of other tools: text, Mermaid, Perfetto, ITF; and the states of a scenario as DOT.

Each is a pure function of the trace. They say less than the trace does; only `tidegate.sim.trace_json` is read back.
"""
