"""Ways to get a pipeline wrong: at least one for each hook that may raise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidegate.pipeline.checks.scenarios import (
    ALL,
    ANSWERED,
    ONE_KEY,
    SINK,
    TOPIC,
    Programs,
    Users,
    crashed,
    deciding,
    judging,
    pipeline,
    poisoned,
    raising,
    refusing,
    sinking,
    stopping,
    unarranged,
)
from tidegate.pipeline.effects import Hook, Output, PipelineRules
from tidegate.pipeline.identity import output_key
from tidegate.pipeline.programs import (
    program_for,
)
from tidegate.sim.runs.registry import Specimen, specimen
from tidegate.sim.trace.variants import variant


def _programs(right: str, wrong: str, **names: object) -> Callable[[], Programs]:
    return partial(variant, program_for, (right, wrong), **names)


def _by_number(offset: int, task: str | None, output: Output) -> str:  # noqa: ARG001  that is the bug
    """A key with the number of the task in place of its id."""
    number = str(output.subject) if output.hook is Hook.TASK_DONE else None
    return output_key(TOPIC, 0, 0, number, output.hook, SINK, output.position)


def _by_place(offset: int, task: str | None, output: Output) -> str:  # noqa: ARG001  that is the bug
    """A key with the record and the number of the task."""
    number = str(output.subject) if output.hook is Hook.TASK_DONE else None
    return output_key(TOPIC, 0, offset, number, output.hook, SINK, output.position)


_WINDOW_RAISES: Final = "        if not _is_failure(replies[0]):\n"

SPECIMENS: Final = (
    specimen(
        "pipeline.delivers_later", ANSWERED,
        "A task counts as done when its hook has returned, and its outputs are delivered by whoever comes next.",
        "Planted: a worker that dies in between has committed records whose outputs are nowhere.",
        _programs("    await _deliver(rules, work, _outputs(Hook.TASK_DONE, numbers, replies))\n", ""),
        make=crashed, of="pipeline"),
    Specimen(
        "pipeline.numbers_its_keys",
        partial(pipeline, users=Users(key_of=_by_number), summary="The key of an output has the number of its task in place of the id."),
        ANSWERED,
        "Planted: windows of another assignment have other records, so the sink takes an output for another one.",
        "pipeline", alone=False, says="The key of an output has the number of its task in place of the id."),
    Specimen(
        "pipeline.places_its_keys",
        partial(pipeline, users=Users(key_of=_by_place), summary="The key of an output has the number of its task besides its record."),
        ONE_KEY,
        "Planted: in another assignment the task has another number, so the sink takes the output twice.",
        "pipeline", alone=False, says="The key of an output has the number of its task besides its record."),
    specimen(
        "pipeline.arrange_is_lost", ANSWERED,
        "A window at which arrange raises has no tasks, so its records are done.",
        "Planted: an error in user code commits a hundred records that nothing was made of.",
        _programs("        except Failure:\n            failures += 1\n", "        except Failure:\n            return (), ()\n"),
        make=raising, of="pipeline.hook_raises"),
    specimen(
        "pipeline.arrange_freezes", ALL,
        "Arrange is called again and again until it does not raise.",
        "Drakkar 2.4.0 (N2): one raise of arrange, and nothing of the partition is committed any more.",
        _programs("        except Failure:\n            failures += 1\n", "        except Failure:\n            failures = 1\n"),
        make=unarranged, of="pipeline.arrange_fails", alone=True),
    specimen(
        "pipeline.task_done_is_lost", ANSWERED,
        "A result at which task_done raises counts as delivered.",
        "Planted: the outputs that it would have returned are nowhere.",
        _programs("events.append(TasksReported(window, raised, attempt, Report.UNDELIVERED))",
                  "events.append(TasksReported(window, raised, attempt, Report.DELIVERED))"),
        make=partial(raising, records=1), of="pipeline.hook_raises"),
    specimen(
        "pipeline.record_done_is_lost", ANSWERED,
        "A record at which record_done raises counts as done.",
        "Drakkar 0.11.1: the error is logged, and the offset is committed.",
        _programs("        left = raised\n", "        left = ()\n        done = offsets\n"),
        make=partial(raising, records=1), of="pipeline.hook_raises"),
    specimen(
        "pipeline.window_done_is_lost", ANSWERED,
        "A window at which window_done raises counts as done.",
        "Drakkar 0.11.1 loses its error in a background task.",
        _programs(_WINDOW_RAISES, _WINDOW_RAISES + "            pass\n        if True:\n"),
        make=partial(raising, records=1), of="pipeline.hook_raises"),
    specimen(
        "pipeline.task_error_freezes", ALL,
        "Task_error is called again and again until it does not raise.",
        "Drakkar 0.11.1: a raise of on_error wedges the partition.",
        _programs("    verdicts = await _called(CallHook(Hook.TASK_ERROR, work, numbers))\n",
                  "    verdicts = await _called(CallHook(Hook.TASK_ERROR, work, numbers))\n"
                  "    while any(map(_is_failure, verdicts)):\n        await Sleep(1)\n"
                  "        verdicts = await _called(CallHook(Hook.TASK_ERROR, work, numbers))\n"),
        make=partial(judging, users=Users(raises=frozenset({Hook.TASK_ERROR}))), of="pipeline.task_error", alone=True),
    specimen(
        "pipeline.delivery_error_is_lost", ANSWERED,
        "An output at which delivery_error raises is dropped.",
        "Drakkar 2.4.0 (W3): the default is to drop it, and to commit.",
        _programs("        else default\n", "        else None\n"),
        make=deciding, of="pipeline.delivery_error"),
    specimen(
        "pipeline.siblings_are_lost", ANSWERED,
        "Where a sink takes one of several outputs, all count as delivered.",
        "Drakkar 0.11.1 (W7): a group of outputs is cancelled with the one that failed.",
        _programs("        if not failed:\n", "        if len(failed) < len(outputs):\n"),
        make=refusing, of="pipeline.sink_refuses"),
    specimen(
        "pipeline.gives_up_on_an_outage", ANSWERED,
        "An output whose delivery was not answered is not delivered again.",
        "Planted: it may not have arrived.",
        _programs("action in (Action.RETRY, Action.HOLD)", "action is Action.RETRY"),
        make=partial(deciding, rules=PipelineRules()), of="pipeline.delivery_error"),
    specimen(
        "pipeline.letter_is_lost", ANSWERED,
        "A dead letter that the broker does not take counts as written.",
        "Drakkar 2.4.0 drops it by default (`dlq.on_send_failure`).",
        _programs("    return _those(letters, await _tried(effect, len(letters)), _is_failure)",
                  "    await _tried(effect, len(letters))\n    return ()"),
        make=partial(sinking, budget=2, rebalances=0), of="pipeline.sink_fails"),
    specimen(
        "pipeline.undecodable_is_lost", ANSWERED,
        "A record that cannot be decoded has no tasks, and nothing stands for it.",
        "Drakkar 2.4.0: `on_parse_error` is skip by default.",
        _programs("    bad = tuple(sorted((*undecodable, *failed)))\n", "    bad = failed\n"),
        make=poisoned, of="pipeline.undecodable"),
    specimen(
        "pipeline.goes_on_past_a_stop", ANSWERED,
        "A record that is to stop its partition is settled all the same.",
        "Drakkar 2.4.0 (N5): `on_parse_error: raise` forgets the rest of the window and goes on.",
        _programs('            raise Refused("a record has failed for good")\n', "            pass\n"),
        make=stopping, of="pipeline.stops"),
)  # fmt: skip
