"""`tidegate pipeline run`: on a broker until a signal ends it, or without servers until nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.exit_codes import ExitCode
from tidegate_adapters.kafka.embedded import records_of
from tidegate_adapters.pipeline.app import Pipeline
from tidegate_adapters.pipeline.embedded import EmbeddedPipeline, Processed
from tidegate_adapters.pipeline.letters import output_json
from tidegate_adapters.shell.application import Answer, Life


def life(app: Pipeline, *, embedded: Path | None = None) -> Life[None] | Life[Processed]:
    """How a pipeline runs.

    Args:
        app: The pipeline.
        embedded: A file of records, in the place of a broker.
    """
    rules, ends = app.rules, "drain and leave"
    if embedded is None:
        return Life(app.run, app.stop, rules.total, ends, rules.leave)
    run = EmbeddedPipeline(app, records_of(embedded))
    return Life(run.run, run.pipeline.stop, rules.total, ends, rules.leave, _answer)


def _answer(processed: Processed) -> Answer:
    """What became of the records of an embedded log."""
    outputs = {name: [json.loads(output_json(each)) for each in some] for name, some in processed.outputs.items()}
    positions, ends = sorted(processed.positions.items()), processed.ends
    return Answer(
        {
            "outputs": outputs,
            "dead_letters": len(processed.letters),
            "committed": {str(each): position for each, position in positions},
            "ends": {str(each): end for each, end in sorted(ends.items())},
        },
        (
            *(f"{name}: {json.dumps(each['value'])}" for name, some in outputs.items() for each in some),
            *(f"{each}: {position} of {ends[each]} committed" for each, position in positions),
            f"{len(processed.letters)} dead letters",
        ),
        (processed.stopped,) if processed.stopped else (),
        code=ExitCode.OK if processed.is_whole else ExitCode.NOT_MET,
    )
