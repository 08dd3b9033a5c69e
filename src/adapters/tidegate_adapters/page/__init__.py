"""The page of a run, put together: `assembly` makes it, of what `tidegate.sim.page` says of the run and of the assets.

The assets are a page (`page.html`), a style (`page.css`) and a script in modules, of which `main.js` is the first to run
and the last to be read. The script needs nothing but the page: no library, no network, no storage. It reads the trace from
the page's JSON, rebuilds every state, and whatever the trace says reaches the page as text.
"""
