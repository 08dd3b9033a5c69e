"""An app of pynenc on MongoDB, as its builder sets it up: its tasks may not be in the main module.

It is told what it needs by the environment, for its workers read it, too.
"""

from __future__ import annotations

import os

from pynenc import PynencBuilder

URI, DATABASE, WORKERS = (os.environ[f"BENCH_{name}"] for name in ("URI", "DATABASE", "WORKERS"))

app = (
    PynencBuilder()
    .app_id("bench")
    .mongo(url=URI)
    .persistent_process_runner(num_processes=int(WORKERS))
    .logging_level("error")
    .custom_config(mongo_db=DATABASE)
    .build()
)


@app.task
def work(at: int) -> None:
    del at
