"""The HTML page of a run: `assembly` builds it from `tidegate.sim.trace.page` and the assets.

`main.js` is the last script module and runs first. The script needs no library, network or storage:
it reads the trace from the page's JSON, rebuilds every state, and inserts values only as text.
"""
