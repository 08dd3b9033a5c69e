"""The HTML page of a run: `assembly` builds it from `tidegate.sim.page` and the assets.

The assets are a page, styles and script modules; `main.js` is the last module and runs first. The
script needs no library, network or storage. It reads the trace from the page's JSON, rebuilds every
state, and inserts values only as text.
"""
