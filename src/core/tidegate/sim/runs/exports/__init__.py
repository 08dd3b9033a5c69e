"""Traces in the formats of other tools: text, Mermaid, Perfetto, ITF; and a scenario's states as
DOT.

Each is a pure function of the trace and loses information. Only `tidegate.sim.trace.trace_json` can be
read back.
"""
