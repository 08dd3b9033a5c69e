"""pynenc on MongoDB: invocations are claimed as its runners claim them, and run by the runner whose workers never sleep.

    python pynenc_.py enqueue|takes|serves URI DATABASE NUMBER

The number is of seconds; of workers, where it serves.
"""

from __future__ import annotations

import os
import sys
import time

from pymongo.monitoring import register
from tally import Counted, say, window

ASK = 100


def takes(seconds: float) -> None:
    counted, taken = Counted(), 0
    register(counted)  # before there is a client
    from pynenc import context
    from pynenc_app import app

    me = context.get_or_create_runner_context(app.app_id)
    app.broker.count_invocations()  # it connects
    until, is_more = window(seconds), True
    counted.number = 0
    while is_more and time.monotonic() < until:
        is_more = False
        for _ in app.orchestrator.get_invocations_to_run(ASK, me):
            taken, is_more = taken + 1, True
            if time.monotonic() >= until:
                break
    say(taken, counted.number)


def main() -> None:
    kind, uri, database, number = sys.argv[1:]
    workers = number if kind == "serves" else "1"
    os.environ |= {"BENCH_URI": uri, "BENCH_DATABASE": database, "BENCH_WORKERS": workers}
    if kind == "takes":
        takes(float(number))
        return
    from pynenc_app import app, work

    if kind == "serves":
        app.runner.run()
    else:
        work(0)


if __name__ == "__main__":
    main()
