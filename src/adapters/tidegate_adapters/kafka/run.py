"""`tidegate worker run`: runs a worker on a broker until a signal, or on an embedded log until its
end.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tidegate.exit_codes import ExitCode
from tidegate_adapters.kafka.embedded import EmbeddedLog, EmbeddedRun, Outcome, records_of
from tidegate_adapters.kafka.worker import Worker
from tidegate_adapters.shell.application import Answer, Life


def life(worker: Worker, *, embedded: Path | None = None) -> Life[None] | Life[Outcome]:
    rules, ends = worker.settings.rules, "drain and leave"
    if embedded is None:
        return Life(worker.run, worker.stop, rules.total, ends, rules.leave)
    on_log = EmbeddedRun(worker, EmbeddedLog(records_of(embedded)))
    return Life(on_log.run, on_log.worker.stop, rules.total, ends, rules.leave, _answer)


def _answer(outcome: Outcome) -> Answer:
    sent = sorted(Counter(each.topic for each in outcome.sent).items())
    positions, ends = sorted(outcome.positions.items()), outcome.ends
    return Answer(
        {
            "handled": outcome.handled,
            "failed": outcome.failed,
            "committed": {str(each): position for each, position in positions},
            "ends": {str(each): end for each, end in sorted(ends.items())},
            "sent": dict(sent),
        },
        (
            f"{outcome.handled} handled, {outcome.failed} failed",
            *(f"{each}: {position} of {ends[each]} committed" for each, position in positions),
            *(f"{topic}: {count} sent" for topic, count in sent),
        ),
        code=ExitCode.OK if outcome.is_whole else ExitCode.NOT_MET,
    )
