"""What a pipeline does for each request of a partition: programs that call hooks and deliver.

    request of the window   program                                     its hook raises
    Arrange                 decode, call arrange, name the tasks        again, then record by record;
                                                                        what fails still has failed
    Start                   none: an executor runs the task             the task has failed
    Judge                   call task_error: retry, skip, replace       the failure stands
    DeliverTasks            call task_done, deliver its outputs         the task has failed
    DeliverRecords          call record_done, deliver its outputs       again, then the record fails
    ... of failed records   dead-letter, skip or stop                   has no hook
    DeliverWindow           call window_done, deliver its outputs       again, then its records fail
    an output fails         call delivery_error: retry, hold,           as the rules say
                            dead-letter, skip

A program holds a request until all is settled, so the position of its records waits for outputs and
dead letters. It never gives an output up by itself. A revocation cancels it; the next owner of the
partition begins anew, and the outputs of both have the same keys (`tidegate.pipeline.identity`).

Laws
    PN1  A record counts as done only after each of its outputs was delivered, dead-lettered with a
         confirmation, or skipped by a decision; or after the record itself was.
    PN2  Every request has an answer: whatever a hook raises, its records are settled, unless the
         rules say STOP. No partition waits for a hook that raised.
    PN3  An output whose delivery was confirmed, skipped or dead-lettered is not delivered again by
         the same program.
    PN4  Retries of hooks and deliveries wait in between, and hooks are called a bounded number of
         times for one request.
    PN5  A record that cannot be decoded or arranged fails alone.
    PN6  The tasks of a window are numbered in the order of the calls of arrange, then those that
         stand for failed records.

Known not to work
    - The records of one request wait for the slowest of them: hooks that ended in one turn of the
      event loop are delivered together.
    - A window whose window_done fails for good dead-letters all of its records, also those that
      have a letter already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar, assert_never, final

import attrs

from tidegate.consumer.fanout import (
    Arrange,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    FanoutEvent,
    Judge,
    RecordsDelivered,
    Report,
    TaskReplaced,
    Tasks,
    TasksReported,
    WindowArranged,
    WindowDelivered,
)
from tidegate.consumer.protocol.commands import Batch, Event, Work, WorkFailed, WorkReported, event_for
from tidegate.model.effects import Effect, Failure, Program, Refused, Sleep
from tidegate.model.values import check_type
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
from tidegate.retries.backoff import delay_after
from tidegate.sinks.delivery import Action
from tidegate.sinks.letter_writing import Attempt, WriteAgain, after_attempt

L = TypeVar("L")


@final
@attrs.frozen
class Answer:
    """What a program answers to a request.

    Attributes:
        events: What happened in the window, in order.
        is_whole: Whether that answers the whole request; the rest of it has failed otherwise.
    """

    events: tuple[FanoutEvent, ...]
    is_whole: bool = True


def program_for(rules: PipelineRules, command: Effect[object]) -> Program[Answer] | None:
    """The program that carries out a command; None where it is not one of user code, or a task is to run.

    Args:
        rules: What follows failures.
        command: A command of a partition.
    """
    check_type(rules, PipelineRules, "the rules of a pipeline")
    check_type(command, Effect, "a command")
    if not isinstance(command, Work):
        return None
    match command.request:
        case Arrange(window, offsets):
            return _arrange(rules, command, window, offsets)
        case Judge(window, numbers, attempt):
            return _decide_failures(rules, command, window, numbers, attempt)
        case DeliverTasks(window, numbers, attempt):
            return _deliver_tasks(rules, command, window, numbers, attempt)
        case DeliverRecords(window, offsets, to_dead_letter) if to_dead_letter:
            return _settle_failed(rules, command, window, offsets)
        case DeliverRecords(window, offsets):
            return _deliver_records(rules, command, window, offsets)
        case DeliverWindow(window):
            return _deliver_window(rules, command, window)
        case _:
            return None


Reply: TypeAlias = object
"""An `Answer`, or the failure that a program or an executor ended with."""


def events_for(command: Effect[object], reply: Reply) -> Event | Batch | None:
    """The event that reports the result of a command of a partition, as
    `tidegate.consumer.protocol.commands.event_for` does.

    Args:
        command: The command.
        reply: The `Answer` of its program; for other commands what the world replied.
    """
    if not isinstance(command, Work) or not isinstance(reply, Answer):
        return event_for(command, reply)
    at = (command.partition, command.generation)
    *before, last = reply.events
    reports: list[Event] = [WorkReported(*at, each) for each in before]
    if reply.is_whole:
        reports.append(WorkReported(*at, last, command.request))
    else:
        reports += [WorkReported(*at, last), WorkFailed(*at, command.request)]
    return reports[0] if len(reports) == 1 else Batch(tuple(reports))


# --- the programs ---------------------------------------------------------------------------------


async def _arrange(rules: PipelineRules, work: Work, window: int, offsets: tuple[int, ...]) -> Answer:
    """Answer an `Arrange`: decode the records, and call arrange until it names tasks."""
    undecodable = await DecodeRecords(work) if rules.decodes else ()
    left = tuple(offset for offset in offsets if offset not in undecodable)
    tasks, failed = await _arranged(rules, work, left) if left else ((), ())
    bad = tuple(sorted((*undecodable, *failed)))
    made = Tasks(
        (*(each.offsets for each in tasks), *((offset,) for offset in bad)),
        tuple(number for number, each in enumerate(tasks) if each.given is True),
        (
            *(number for number, each in enumerate(tasks) if each.given is False),
            *range(len(tasks), len(tasks) + len(bad)),
        ),
    )
    return Answer((WindowArranged(window, made),))


async def _arranged(
    rules: PipelineRules, work: Work, offsets: tuple[int, ...]
) -> tuple[tuple[TaskSpec, ...], tuple[int, ...]]:
    """The tasks, and the records that arrange raises at: if it raises at many, each is tried alone."""
    failures = 0
    while True:
        try:
            return await CallArrange(work, offsets), ()
        except Failure:
            failures += 1
        if failures > rules.hook_retries:
            break
        await Sleep(delay_after(rules.backoff, failures))
    if len(offsets) == 1:
        return (), offsets
    tasks: tuple[TaskSpec, ...] = ()
    failed: tuple[int, ...] = ()
    for offset in offsets:
        try:
            tasks = (*tasks, *await CallArrange(work, (offset,)))
        except Failure:
            failed = (*failed, offset)
    return tasks, failed


async def _decide_failures(
    rules: PipelineRules, work: Work, window: int, numbers: tuple[int, ...], attempt: int
) -> Answer:
    """Answer a `Judge`: retry, skip or replace each failed task. Without task_error all are retried."""
    if Hook.TASK_ERROR not in rules.decides:
        return Answer((TasksReported(window, numbers, attempt, Report.RETRIED),))
    verdicts = await _called(CallHook(Hook.TASK_ERROR, work, numbers))
    retried = _those(numbers, verdicts, lambda verdict: verdict is Verdict.RETRY)
    replaced = _those(numbers, verdicts, lambda verdict: isinstance(verdict, tuple))
    skipped = tuple(number for number in numbers if number not in (*retried, *replaced))
    events: list[FanoutEvent] = []
    if retried:
        events.append(TasksReported(window, retried, attempt, Report.RETRIED))
    if skipped:
        events.append(TasksReported(window, skipped, attempt, Report.SKIPPED))
    for number, verdict in zip(numbers, verdicts, strict=True):
        if isinstance(verdict, tuple):
            events.append(TaskReplaced(window, number, attempt, _replacement(verdict)))
    return Answer(tuple(events))


def _replacement(specs: Sequence[TaskSpec]) -> Tasks:
    """The tasks that replace one, as the window takes them."""
    return Tasks(
        tuple(each.offsets for each in specs),
        tuple(number for number, each in enumerate(specs) if each.given is True),
        tuple(number for number, each in enumerate(specs) if each.given is False),
    )


async def _deliver_tasks(
    rules: PipelineRules, work: Work, window: int, numbers: tuple[int, ...], attempt: int
) -> Answer:
    """Answer a `DeliverTasks`: call task_done, and deliver its outputs."""
    replies = await _called(CallHook(Hook.TASK_DONE, work, numbers))
    raised = _those(numbers, replies, _is_failure)
    done = tuple(number for number in numbers if number not in raised)
    await _deliver(rules, work, _outputs(Hook.TASK_DONE, numbers, replies))
    events: list[FanoutEvent] = []
    if done:
        events.append(TasksReported(window, done, attempt, Report.DELIVERED))
    if raised:
        events.append(TasksReported(window, raised, attempt, Report.UNDELIVERED))
    return Answer(tuple(events))


async def _deliver_records(rules: PipelineRules, work: Work, window: int, offsets: tuple[int, ...]) -> Answer:
    """Answer a `DeliverRecords` of records that have not failed: call record_done, and deliver its outputs."""
    left, failures = offsets, 0
    done: tuple[int, ...] = ()
    while True:
        replies = await _called(CallHook(Hook.RECORD_DONE, work, left))
        raised = _those(left, replies, _is_failure)
        await _deliver(rules, work, _outputs(Hook.RECORD_DONE, left, replies))
        done = (*done, *(offset for offset in left if offset not in raised))
        left = raised
        failures += 1
        if not left or failures > rules.hook_retries:
            break
        await Sleep(delay_after(rules.backoff, failures))
    if not done:
        raise Refused("record_done raised")
    return Answer((RecordsDelivered(window, tuple(sorted(done))),), not left)


async def _deliver_window(rules: PipelineRules, work: Work, window: int) -> Answer:
    """Answer a `DeliverWindow`: call window_done, and deliver its outputs."""
    failures = 0
    while True:
        replies = await _called(CallHook(Hook.WINDOW_DONE, work, (window,)))
        if not _is_failure(replies[0]):
            await _deliver(rules, work, _outputs(Hook.WINDOW_DONE, (window,), replies))
            break
        failures += 1
        if failures > rules.hook_retries:
            await _settle(work, rules.on_failure, work.offsets)
            break
        await Sleep(delay_after(rules.backoff, failures))
    return Answer((WindowDelivered(window),))


async def _settle_failed(rules: PipelineRules, work: Work, window: int, offsets: tuple[int, ...]) -> Answer:
    """Answer a `DeliverRecords` of failed records: dead-letter them, skip them, or stop."""
    undecodable: tuple[int, ...] = ()
    if rules.decodes and rules.undecodable is not rules.on_failure:
        undecodable = await FindUndecodable(work)
    others = tuple(offset for offset in offsets if offset not in undecodable)
    if undecodable:
        await _settle(work, rules.undecodable, undecodable)
    if others:
        await _settle(work, rules.on_failure, others)
    return Answer((RecordsDelivered(window, offsets),))


# --- their parts ----------------------------------------------------------------------------------


async def _settle(work: Work, policy: OnFailure, offsets: tuple[int, ...]) -> None:
    """Dead-letter records, skip them, or fail, which stops their partition."""
    match policy:
        case OnFailure.DEAD_LETTER:
            failures = 0
            while True:
                offsets = await _unwritten(WriteRecords(work, offsets), offsets)
                if not offsets:
                    break
                failures = await _wait_to_write(failures)
        case OnFailure.SKIP:
            await LogSkipped(work, offsets)
        case OnFailure.STOP:
            raise Refused("a record has failed for good")
        case _:
            assert_never(policy)


async def _deliver(rules: PipelineRules, work: Work, outputs: tuple[Output, ...]) -> None:
    """Deliver outputs until each is delivered, dead-lettered or skipped."""
    failures = 0
    while outputs:
        replies = await _tried(Deliver(work, outputs), len(outputs))
        failed = _those(outputs, replies, _is_failure)
        if not failed:
            break
        failures += 1
        reasons = tuple(reply for reply in replies if isinstance(reply, Failure))
        actions = await _actions(rules, work, failed, reasons, failures)
        letters = _those(failed, actions, lambda action: action is Action.DEAD_LETTER)
        skipped = _those(failed, actions, lambda action: action is Action.SKIP)
        tries = 0
        while letters:
            letters = await _unwritten(WriteOutputs(work, letters), letters)
            if letters:
                tries = await _wait_to_write(tries)
        if skipped:
            await LogSkipped(work, outputs=skipped)
        outputs = _those(failed, actions, lambda action: action in (Action.RETRY, Action.HOLD))
        if outputs:
            await Sleep(delay_after(rules.backoff, failures))


async def _actions(
    rules: PipelineRules, work: Work, failed: tuple[Output, ...], reasons: tuple[Failure, ...], failures: int
) -> tuple[Action, ...]:
    """What follows the failure of each output: what delivery_error says, else what the rules say."""
    usual = tuple(rules.refused if isinstance(reason, Refused) else rules.lasting for reason in reasons)
    if Hook.DELIVERY_ERROR not in rules.decides:
        return usual
    told = await _tried(CallDeliveryError(work, failed), len(failed))
    return tuple(
        action
        if isinstance(action, Action) and (action is not Action.RETRY or failures <= rules.delivery_retries)
        else default
        for action, default in zip(told, usual, strict=True)
    )


async def _called(call: CallHook) -> tuple[object, ...]:
    """The replies of a hook; if the call as a whole failed, each has failed."""
    try:
        return await call
    except Failure as failure:
        return (failure.fresh(),) * len(call.subjects)


async def _tried(effect: Effect[tuple[object, ...]], count: int) -> tuple[object, ...]:
    try:
        return await effect
    except Failure as failure:
        return (failure.fresh(),) * count


async def _unwritten(effect: Effect[tuple[object, ...]], letters: tuple[L, ...]) -> tuple[L, ...]:
    """Those of the dead letters that no broker has confirmed."""
    return _those(letters, await _tried(effect, len(letters)), _is_failure)


async def _wait_to_write(failures: int) -> int:
    """Wait before dead letters are written again; the number of failures so far."""
    verdict = after_attempt(Attempt.FAILED, failures)
    assert isinstance(verdict, WriteAgain)
    await Sleep(verdict.delay)
    return verdict.failures


def _outputs(hook: Hook, subjects: tuple[int, ...], replies: Sequence[object]) -> tuple[Output, ...]:
    return tuple(
        Output(hook, subject, position, sink)
        for subject, reply in zip(subjects, replies, strict=True)
        if isinstance(reply, tuple)
        for position, sink in enumerate(reply)
    )


def _is_failure(reply: object) -> bool:
    return isinstance(reply, Failure)


def _those(subjects: tuple[L, ...], replies: Sequence[object], is_wanted: Callable[[object], bool]) -> tuple[L, ...]:
    return tuple(subject for subject, reply in zip(subjects, replies, strict=True) if is_wanted(reply))
