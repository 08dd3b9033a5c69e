"""Programs of a pipeline over random replies: hooks raise, sinks and the dead-letter topic fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.consumer.fanout import Arrange, DeliverRecords, DeliverTasks, DeliverWindow, Judge, Tally, UserRequest
from tidegate.consumer.protocol.commands import Batch, Work, WorkFailed, WorkReported
from tidegate.model.effects import Ambiguous, Effect, Failure, Refused, Sleep
from tidegate.model.records import TopicPartition
from tidegate.pipeline import programs
from tidegate.pipeline.checks import laws
from tidegate.pipeline.effects import (
    CallArrange,
    CallDeliveryError,
    CallHook,
    DecodeRecords,
    Deliver,
    FindUndecodable,
    Hook,
    LogSkipped,
    OnFailure,
    Output,
    PipelineRules,
    TaskSpec,
    Verdict,
    WriteOutputs,
    WriteRecords,
)
from tidegate.pipeline.programs import Answer
from tidegate.sinks.delivery import Action

AT = TopicPartition("t", 0)
OFFSETS = (4, 5, 7)
REQUESTS: Sequence[UserRequest] = (
    Arrange(0, OFFSETS),
    Judge(0, (0, 1), 1),
    DeliverTasks(0, (0, 1, 2), 1),
    DeliverRecords(0, OFFSETS),
    DeliverRecords(0, OFFSETS, OFFSETS),
    DeliverWindow(0, Tally(3, 3, 0, 0)),
)
RULES = st.builds(
    PipelineRules,
    decodes=st.booleans(),
    decides=st.frozensets(st.sampled_from((Hook.TASK_ERROR, Hook.DELIVERY_ERROR))),
    undecodable=st.sampled_from(OnFailure),
    on_failure=st.sampled_from(OnFailure),
    hook_retries=st.integers(0, 2),
    delivery_retries=st.integers(0, 2),
)
ENOUGH = 40
"""After so many effects nothing fails any more."""


@attrs.define
class Run:
    """One run of a program, and what it asked for."""

    draw: Callable[[Sequence[object]], Any]
    bad: tuple[int, ...]
    asked: list[Effect[object]] = attrs.field(factory=list)
    unconfirmed: list[tuple[Output, ...]] = attrs.field(factory=list)
    specs: tuple[TaskSpec, ...] = ()
    returned: set[int] = attrs.field(factory=set)
    poison: int | None = None

    def reply(self, effect: Effect[object]) -> object:
        self.asked.append(effect)
        fails = len(self.asked) < ENOUGH and self.draw((True, False))
        match effect:
            case Sleep() | LogSkipped():
                return None
            case DecodeRecords(work) | FindUndecodable(work):
                return tuple(offset for offset in work.offsets if offset in self.bad)
            case CallArrange(_, offsets):
                if fails if self.poison is None else self.poison in offsets:
                    return Ambiguous("ValueError")
                made = tuple(TaskSpec(f"{offset}", (offset,)) for offset in offsets)
                self.specs += made
                return made
            case CallHook(hook, _, subjects):
                if fails and self.draw((True, False)):
                    return Refused("user code raised")
                good: Sequence[object] = (
                    (Verdict.RETRY, Verdict.SKIP, ()) if hook is Hook.TASK_ERROR else ((), ("s",), ("s", "s"))
                )
                replies = (*good, Ambiguous("ValueError")) if fails else good
                told = tuple(self.draw(replies) for _ in subjects)
                self.returned |= {
                    each for each, reply in zip(subjects, told, strict=True) if not isinstance(reply, Failure)
                }
                return told
            case CallDeliveryError(_, outputs):
                return Refused("raised") if fails else tuple(self.draw(tuple(Action)) for _ in outputs)
            case Deliver(_, outputs):
                told = tuple(self.draw((None, Refused("large"), Ambiguous("lost"))) if fails else None for _ in outputs)
                whole = fails and self.draw((True, False))
                self.unconfirmed.append(
                    outputs if whole else tuple(each for each, no in zip(outputs, told, strict=True) if no)
                )
                return Ambiguous("no reply") if whole else told
            case WriteRecords(_, letters) | WriteOutputs(_, letters):
                return tuple(self.draw((None, Ambiguous("lost"))) if fails else None for _ in letters)
            case _:
                raise AssertionError(effect)


def run(
    rules: PipelineRules,
    request: UserRequest,
    data: st.DataObject,
    bad: tuple[int, ...] = (5,),
    poison: int | None = None,
) -> tuple[Run, Any, Work]:
    work = Work(AT, 1, request, OFFSETS)
    here = Run(lambda options: data.draw(st.sampled_from(options)), bad, poison=poison)
    program = programs.program_for(rules, work)
    assert program is not None
    reply: object = None
    try:
        while len(here.asked) < 20 * ENOUGH:
            effect = program.throw(reply) if isinstance(reply, Failure) else program.send(reply)
            reply = here.reply(effect)
    except StopIteration as end:
        return here, end.value, work
    except Failure as failure:
        return here, failure, work
    raise AssertionError("PN2")


@given(RULES, st.sampled_from(REQUESTS), st.data())
def test_every_request_has_an_answer(rules: PipelineRules, request: UserRequest, data: st.DataObject) -> None:
    """Law PN2: an answer that covers the request, or a failure of all of it."""
    _, answer, work = run(rules, request, data)
    event = programs.events_for(work, answer)
    events = event.events if isinstance(event, Batch) else (event,)

    if isinstance(answer, Answer):
        last = events[-1]
        assert isinstance(last, WorkFailed) or (isinstance(last, WorkReported) and last.ended == request)
        named = [
            each for what in answer.events for each in (*getattr(what, "numbers", ()), *getattr(what, "offsets", ()))
        ]
        assert len({*named}) == len(named)
    else:
        assert isinstance(events[0], WorkFailed)


@given(RULES, st.sampled_from(REQUESTS[2:]), st.data())
def test_nothing_confirmed_is_delivered_again(rules: PipelineRules, request: UserRequest, data: st.DataObject) -> None:
    """Law PN3."""
    here, _, _ = run(rules, request, data)
    batches: list[list[tuple[Output, ...]]] = []
    failed: list[list[tuple[Output, ...]]] = []
    unconfirmed = iter(here.unconfirmed)
    for effect in here.asked:
        if isinstance(effect, CallHook):
            batches.append([])
            failed.append([])
        elif isinstance(effect, Deliver):
            batches[-1].append(effect.outputs)
            failed[-1].append(next(unconfirmed))
    assert all(laws.is_not_delivered_again(*each) for each in zip(batches, failed, strict=True))
    for effect in here.asked:
        if isinstance(effect, WriteOutputs):
            assert {*effect.outputs} <= {output for outputs in here.unconfirmed for output in outputs}


@given(RULES, st.sampled_from(REQUESTS), st.data())
def test_hooks_are_called_a_bounded_number_of_times(
    rules: PipelineRules, request: UserRequest, data: st.DataObject
) -> None:
    """Law PN4."""
    here, _, _ = run(rules, request, data)
    calls = [effect for effect in here.asked if isinstance(effect, (CallArrange, CallHook))]
    assert laws.calls_are_bounded(len(calls), len(OFFSETS), rules.hook_retries)
    for before, after in zip(here.asked, here.asked[1:], strict=False):
        assert not isinstance(before, (Deliver, WriteRecords, WriteOutputs)) or type(before) is not type(after)
        same = isinstance(before, (CallArrange, CallHook)) and before == after
        assert not same


@given(RULES, st.data(), st.sampled_from(((), (5,), OFFSETS)), st.sampled_from((None, *OFFSETS)))
def test_a_bad_record_fails_alone_and_tasks_are_numbered(
    rules: PipelineRules, data: st.DataObject, bad: tuple[int, ...], poison: int | None
) -> None:
    """Laws PN5 and PN6."""
    here, answer, _ = run(rules, REQUESTS[0], data, bad, poison)
    tasks = answer.events[0].tasks
    arranged = {each.offsets[0] for each in here.specs}
    assert laws.fails_alone(tasks, [offset for offset in OFFSETS if offset not in arranged], arranged)
    assert laws.is_numbered(tasks, here.specs)
    if poison is not None:
        assert arranged == {*OFFSETS} - {poison} - ({*bad} if rules.decodes else {poison})


@given(RULES, st.sampled_from(REQUESTS[3:5]), st.data())
def test_a_record_is_done_only_when_its_outputs_are(
    rules: PipelineRules, request: UserRequest, data: st.DataObject
) -> None:
    """Law PN1, of one request: what it reports as done was delivered, dead-lettered or skipped."""
    here, answer, _ = run(rules, request, data)
    if not isinstance(answer, Answer):
        return
    done = {offset for event in answer.events for offset in getattr(event, "offsets", ())}
    open_outputs: set[Output] = set()
    settled: set[int] = set()
    replies = iter(here.unconfirmed)
    for effect in here.asked:
        if isinstance(effect, Deliver):
            open_outputs = {*open_outputs, *effect.outputs} - ({*effect.outputs} - {*next(replies)})
        elif isinstance(effect, (WriteOutputs, LogSkipped)) and effect.outputs:
            open_outputs -= {*effect.outputs}
        if isinstance(effect, (WriteRecords, LogSkipped)):
            settled |= {*effect.offsets}
    assert laws.is_answered([str(each) for each in open_outputs if each.subject in done], (), has_letter=False)
    assert isinstance(request, DeliverRecords)
    assert done <= (settled if request.to_dead_letter else here.returned)


test_a_planted_bug_is_found = planted(
    programs,
    bug(
        "a hook that raises is called for ever",
        ("        failures += 1\n        if not left or failures > rules.hook_retries:\n", "        failures = 1\n        if not left:\n"),
        test_hooks_are_called_a_bounded_number_of_times,
    ),
    bug(
        "what was confirmed is delivered again",
        ("        outputs = _those(failed, actions, lambda action: action in (Action.RETRY, Action.HOLD))\n",
         "        outputs = outputs if any(action in (Action.RETRY, Action.HOLD) for action in actions) else ()\n"),
        test_nothing_confirmed_is_delivered_again,
    ),
    bug(
        "a retry does not wait",
        ("        if outputs:\n            await Sleep(delay_after(rules.backoff, failures))\n", ""),
        test_hooks_are_called_a_bounded_number_of_times,
    ),
    bug(
        "all records of a window fail with one",
        ("    if len(offsets) == 1:\n", "    if True:\n"),
        test_a_bad_record_fails_alone_and_tasks_are_numbered,
    ),
    bug(
        "tasks of failed records come first",
        ("(*(each.offsets for each in tasks), *((offset,) for offset in bad))", "(*((offset,) for offset in bad), *(each.offsets for each in tasks))"),
        test_a_bad_record_fails_alone_and_tasks_are_numbered,
    ),
    bug(
        "the whole request is answered where a record still fails",
        ("RecordsDelivered(window, tuple(sorted(done))),), not left)", "RecordsDelivered(window, offsets),))"),
        test_a_record_is_done_only_when_its_outputs_are,
    ),
    bug(
        "a failed task is named twice",
        ("number not in (*retried, *replaced))", "number not in replaced)"),
        test_every_request_has_an_answer,
    ),
    bug(
        "an output that is skipped is not logged",
        ("            await LogSkipped(work, outputs=skipped)\n", "            pass\n"),
        test_a_record_is_done_only_when_its_outputs_are,
    ),
)  # fmt: skip
