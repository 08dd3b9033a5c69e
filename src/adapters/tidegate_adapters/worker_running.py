"""`tidegate worker run`: a worker on a broker until a signal ends it, or on an embedded log until nothing is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tidegate.exit_codes import ExitCode
from tidegate_adapters.cli.console import Terminal
from tidegate_adapters.embedded_log import EmbeddedLog, EmbeddedRun, Outcome, records_of
from tidegate_adapters.kafka import Worker
from tidegate_adapters.running import WORKER, Life, Logs, Told, run_until_stopped
from tidegate_adapters.signals import CODES

__all__ = ["run_worker"]


def run_worker(told: Told, embedded: Path | None, logs: Logs, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Run a worker until it is asked to stop; on an embedded log, until nothing is left that it would do.

    Args:
        told: Which worker.
        embedded: A file of records, in the place of a broker.
        logs: How it logs.
        terminal: Where it is shown how it ended.
        is_json: Answer with one JSON object.

    Raises:
        Misuse: There is no such worker, or it is told what cannot be.
        CodeRaisedError: The user's code that makes it raised an error.
        ServerFailedError: The broker does not answer, or has failed it.
    """

    def life(worker: Worker) -> Life[Outcome | None]:
        rules, ends = worker.settings.rules, "drain and leave"
        total, leave = rules.total, rules.leave
        if embedded is None:
            return Life(worker.run, worker.stop, total, ends, leave)
        on_log = EmbeddedRun(worker, EmbeddedLog(records_of(embedded)))
        return Life(on_log.run, on_log.worker.stop, total, ends, leave)

    ended = run_until_stopped(told, WORKER, life, logs, terminal)
    outcome = ended.outcome
    ok = outcome is None or outcome.is_whole
    if is_json:
        answer = {"schema": "tidegate/worker@1", "ended_by": ended.by and ended.by.name, "ok": ok}
        terminal.answer(answer if outcome is None else {**answer, **_as_json(outcome)})
    elif outcome is not None:
        tell(outcome, terminal)
    if ended.by is not None:
        return CODES[ended.by]
    return ExitCode.OK if ok else ExitCode.NOT_MET


def tell(outcome: Outcome, terminal: Terminal) -> None:
    """What became of the records of an embedded log, in lines."""
    terminal.say(f"{outcome.handled} handled, {outcome.failed} failed")
    for partition, position in sorted(outcome.positions.items()):
        terminal.say(f"{partition}: {position} of {outcome.ends[partition]} committed")
    for topic, count in sorted(Counter(each.topic for each in outcome.sent).items()):
        terminal.say(f"{topic}: {count} sent")


def _as_json(outcome: Outcome) -> Mapping[str, object]:
    committed = {str(each): position for each, position in sorted(outcome.positions.items())}
    ends = {str(each): end for each, end in sorted(outcome.ends.items())}
    sent = dict(sorted(Counter(each.topic for each in outcome.sent).items()))
    return {"handled": outcome.handled, "failed": outcome.failed, "committed": committed, "ends": ends, "sent": sent}
