"""Cases of what is decided about a partition of a log."""

from __future__ import annotations

from typing import Final

from benchmarks.cases.table import (
    BACK_THEN,
    BATCH,
    BYTES,
    NOW,
    OFFSETS,
    PARTITIONS,
    PAYLOADS,
    RECORDS,
    SOURCES,
    Made,
    Table,
    drawn,
)

from tidegate.consumer import fanout
from tidegate.consumer.committing import commit_metadata, commit_pacing, commits
from tidegate.consumer.flow import backpressure, drain
from tidegate.consumer.flow import partition_pause as holding
from tidegate.consumer.offsets import explanation, watermark
from tidegate.consumer.partition import in_flight_records as handling
from tidegate.consumer.partition import in_flight_windows as windowed
from tidegate.consumer.partition import partition
from tidegate.consumer.partition import ready_queue as order
from tidegate.consumer.protocol import commands
from tidegate.consumer.worker import consumer, health, worker
from tidegate.model.effects import Ambiguous, Sleep
from tidegate.model.instants import MILLISECOND, MINUTE, PPM, SECOND, Instant
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.retries import attempt_delays as pauses
from tidegate.retries import backoff, budget, failures, polling
from tidegate.sinks import circuit_breaker, dead_letters, dead_records, delivery, outbox

table: Final = Table("A partition of a log")


def half_done(size: int) -> watermark.OffsetTracker:
    """So many offsets behind a stuck head, each done with one chance in two."""
    draw = drawn(size)
    outstanding = watermark.delivered(watermark.OffsetTracker(0), range(size))
    return watermark.completed(outstanding, [at for at in range(1, size) if draw.random() < 0.5])


def some_open(tracker: watermark.OffsetTracker) -> list[int]:
    """A batch of its open offsets, without the head."""
    return drawn(BATCH).sample(watermark.open_offsets(tracker)[1:], BATCH)


@table.case(watermark, f"{BATCH} are delivered", OFFSETS)
def delivering(size: int) -> Made[watermark.OffsetTracker]:
    tracker, batch = half_done(size), range(size, size + BATCH)
    return lambda: watermark.delivered(tracker, batch), lambda after: watermark.highest(after) == size + BATCH - 1


@table.case(watermark, f"{BATCH} are completed", OFFSETS)
def completing(size: int) -> Made[watermark.OffsetTracker]:
    tracker = half_done(size)
    batch, left = some_open(tracker), watermark.pending(tracker) - BATCH
    return lambda: watermark.completed(tracker, batch), lambda after: watermark.pending(after) == left


@table.case(watermark, "what may be committed", OFFSETS)
def committing(size: int) -> Made[int | None]:
    tracker = watermark.completed(half_done(size), range(size // 2))
    return lambda: watermark.committable(tracker), lambda position: (position or 0) >= size // 2


@table.case(watermark, "a commit is acknowledged", OFFSETS)
def acknowledging(size: int) -> Made[watermark.OffsetTracker]:
    tracker = watermark.completed(half_done(size), range(size // 2))
    return lambda: watermark.acknowledged(tracker, size // 2), lambda after: after.floor == size // 2


@table.case(explanation, "explain", OFFSETS)
def explaining(size: int) -> Made[explanation.Explanation]:
    tracker, work = half_done(size), {0: explanation.WorkStatus("running", BACK_THEN)}
    return (
        lambda: explanation.explain(tracker, work, NOW),
        lambda answer: isinstance(answer, explanation.Blocked) and answer.age == MINUTE,
    )


@table.case(explanation, "duplicate budget", OFFSETS)
def budgeting(size: int) -> Made[explanation.DuplicateBudget]:
    tracker, heir = half_done(size), watermark.OffsetTracker(0)
    finished = len(watermark.done_offsets(tracker))
    return lambda: explanation.duplicate_budget(tracker, heir, (0,)), lambda answer: answer.records == finished + 1


@table.case(commit_metadata, "survey from scratch", OFFSETS)
def surveying(size: int) -> Made[commit_metadata.Survey]:
    tracker = half_done(size)
    return lambda: commit_metadata.surveyed(tracker), lambda survey: survey.tracker is tracker


@table.case(commit_metadata, f"survey after {BATCH} more are done", OFFSETS)
def surveying_again(size: int) -> Made[commit_metadata.Survey]:
    tracker = half_done(size)
    before, after = commit_metadata.surveyed(tracker), watermark.completed(tracker, some_open(tracker))
    return lambda: commit_metadata.surveyed(after, before), lambda survey: survey == commit_metadata.surveyed(after)


@table.case(commit_metadata, "size", OFFSETS)
def sizing(size: int) -> Made[int]:
    survey = commit_metadata.surveyed(half_done(size))
    return lambda: commit_metadata.units(survey), lambda units: units > size // 20


@table.case(commit_metadata, "encode", OFFSETS)
def encoding(size: int) -> Made[commit_metadata.Encoded]:
    survey = commit_metadata.surveyed(half_done(size))
    return lambda: commit_metadata.encoded(survey), lambda made: 0 < len(made.text) <= commit_metadata.LIMIT


@table.case(commit_metadata, "decode", OFFSETS)
def decoding(size: int) -> Made[commit_metadata.Decoded]:
    tracker = half_done(size)
    made = commit_metadata.encoded(commit_metadata.surveyed(tracker))
    return (
        lambda: commit_metadata.decoded(made.text, position=0, end=size),
        lambda answer: answer.tracker == watermark.successor(tracker, made.stop),
    )


def in_work(size: int) -> fanout.Fanout:
    """So many records in windows of a batch, each of which is a task that runs."""
    state = fanout.Fanout()
    for first in range(0, size, BATCH):
        state = arranged(opened(state, range(first, first + BATCH)))
    return state


def opened(state: fanout.Fanout, offsets: range) -> fanout.Fanout:
    return fanout.step(state, fanout.WindowOpened(tuple(offsets)), partition.PLAIN).state


def arranged(state: fanout.Fanout) -> fanout.Fanout:
    """With a task for each record of the last window."""
    tasks = fanout.Tasks(tuple((offset,) for offset in fanout.records(state)[-BATCH:]))
    return fanout.step(state, fanout.WindowArranged(last_window(state), tasks), partition.PLAIN).state


def last_window(state: fanout.Fanout) -> int:
    standing = fanout.record_status(state, fanout.records(state)[-1])
    assert standing is not None
    return standing.window


@table.case(order, f"{BATCH} of a queue are taken", RECORDS)
def taking(size: int) -> Made[tuple[order.Queue, tuple[int, ...]]]:
    tracker = watermark.delivered(watermark.OffsetTracker(0), range(size + BATCH))
    queue = order.Queue(0).came(tuple(range(size + BATCH)))
    return lambda: queue.taken(tracker, BATCH), lambda answer: len(answer[1]) == BATCH


@table.case(handling, "a record is tried again", RECORDS)
def trying_again(size: int) -> Made[handling.Handling]:
    failing = dict.fromkeys(range(size), (handling.RecordPhase.BACKING_OFF, 2))
    state = handling.Handling(running=size).failed(failing)
    return lambda: state.rested(size // 2), lambda answer: answer.ready == (size // 2,)


@table.case(windowed, "tasks are given to executors", RECORDS)
def giving(size: int) -> Made[tuple[windowed.Windowed, tuple[fanout.Start, ...]]]:
    ready = tuple(fanout.Start(window, (0,), 1) for window in range(size))
    work = windowed.Windowed(ready=ready)
    return lambda: work.started(BATCH), lambda answer: len(answer[1]) == min(size, BATCH)


@table.case(commits, "which position, now?", OFFSETS)
def committing_now(size: int) -> Made[int | None]:
    tracker = watermark.completed(half_done(size), [0])
    return lambda: commits.Commits().next_position(tracker, 100), lambda answer: answer is not None


@table.case(holding, "held or free?", OFFSETS)
def holding_up(size: int) -> Made[holding.Holding]:
    tracker, limits = half_done(size), backpressure.PartitionLimits()
    wanted = backpressure.Held if limits.span is not None and size >= limits.span.high else backpressure.Free
    return lambda: holding.Holding().decided(limits, tracker, 0), lambda answer: isinstance(answer.hold, wanted)


@table.case(fanout, f"a window of {BATCH} is opened", RECORDS)
def opening(size: int) -> Made[fanout.FanoutStep]:
    state, event = in_work(size), fanout.WindowOpened(tuple(range(size, size + BATCH)))
    return (
        lambda: fanout.step(state, event, partition.PLAIN),
        lambda step: isinstance(step.commands[0], fanout.Arrange),
    )


@table.case(fanout, f"a window of {BATCH} is arranged", RECORDS)
def arranging(size: int) -> Made[fanout.FanoutStep]:
    state = opened(in_work(size), range(size, size + BATCH))
    tasks = fanout.Tasks(tuple((offset,) for offset in range(size, size + BATCH)))
    event = fanout.WindowArranged(last_window(state), tasks)
    return lambda: fanout.step(state, event, partition.PLAIN), lambda step: isinstance(step.commands[0], fanout.Start)


@table.case(fanout, "a task succeeds", RECORDS)
def reporting(size: int) -> Made[fanout.FanoutStep]:
    state = in_work(size)
    event = fanout.TasksReported(last_window(state), (7,), 1, fanout.Report.SUCCEEDED)
    return (
        lambda: fanout.step(state, event, partition.PLAIN),
        lambda step: any(isinstance(output, fanout.RecordsSettled) for output in step.commands),
    )


@table.case(fanout, "load", RECORDS)
def loading(size: int) -> Made[backpressure.Load]:
    state = in_work(size)
    active = {window for window, _ in fanout.in_flight(state)}
    return lambda: fanout.load(state, active), lambda load: load.records == size


@table.case(fanout, "how a record is doing", RECORDS)
def standing(size: int) -> Made[fanout.RecordStatus | None]:
    state = in_work(size)
    return (
        lambda: fanout.record_status(state, size - 1),
        lambda answer: answer is not None and answer.waits is fanout.Waits.TASKS,
    )


@table.case(backpressure, "the gate")
def gating(_: int) -> Made[backpressure.GateVerdict]:
    thresholds = backpressure.for_executors(4)
    return (
        lambda: backpressure.decide(thresholds, backpressure.Gate.OPEN, 200),
        lambda verdict: isinstance(verdict, backpressure.Hold),
    )


@table.case(backpressure, "one partition")
def weighing(_: int) -> Made[backpressure.PartitionHold]:
    bounds, strain = backpressure.PartitionLimits(), backpressure.PartitionPressure(span=20_000, metadata=100)
    return (
        lambda: backpressure.decide_partition(bounds, backpressure.Free(), strain),
        lambda hold: hold.by == (backpressure.Signal.SPAN,),
    )


@table.case(backpressure, "plan", PARTITIONS)
def planning(size: int) -> Made[backpressure.Plan[int]]:
    assigned, held = range(size), drawn(size).sample(range(size), size // 10)
    flow = backpressure.Flow(backpressure.GateReason.BELOW_HIGH)
    return lambda: backpressure.plan(flow, assigned, (), held), lambda plan: len(plan.poll) == size - size // 10


@table.case(drain, "plan", RECORDS)
def draining(size: int) -> Made[tuple[drain.DrainDecision, ...]]:
    draw = drawn(size)
    records = [drain.InFlight(at, age=draw.randrange(MINUTE), expected=draw.randrange(MINUTE)) for at in range(size)]
    return lambda: drain.plan(partition.DRAIN, SECOND, records), lambda fates: len({f.action for f in fates}) > 1


HERE: Final = TopicPartition("topic", 0)


def busy(
    size: int, where: TopicPartition = HERE
) -> tuple[partition.PartitionRules, partition.PartitionState, commands.Work]:
    """A partition with this many records, all of which run."""
    processor = partition.PartitionRules(running_max=2 * size, window_max=size)
    state = processor.step(partition.Unassigned(), commands.Assigned(where, 1, 0)).state
    step = processor.step(state, commands.Fetched(where, 1, tuple(range(size))))
    return processor, step.state, next(command for command in step.commands if isinstance(command, commands.Work))


def one_reported(work: commands.Work) -> commands.WorkReported:
    return commands.WorkReported(work.partition, work.generation, commands.RecordsHandled((7,)))


@table.case(partition, "a batch is fetched", RECORDS)
def fetching(size: int) -> Made[partition.PartitionStep]:
    processor = partition.PartitionRules(running_max=size, window_max=size)
    state = processor.step(partition.Unassigned(), commands.Assigned(HERE, 1, 0)).state
    event = commands.Fetched(HERE, 1, tuple(range(size)))
    return lambda: processor.step(state, event), lambda step: isinstance(step.commands[-1], commands.Work)


@table.case(partition, "one of this many is done", RECORDS)
def telling(size: int) -> Made[partition.PartitionStep]:
    processor, state, work = busy(size)
    event = one_reported(work)
    return (
        lambda: processor.step(state, event),
        lambda step: isinstance(step.state, partition.Owned) and step.state.running == size - 1,
    )


@table.case(partition, "a revocation", RECORDS)
def revoking(size: int) -> Made[partition.PartitionStep]:
    processor, state, _ = busy(size)
    event = commands.Revoked(HERE, tuple(drain.InFlight(offset, age=SECOND) for offset in range(size)))
    return lambda: processor.step(state, event), lambda step: any(
        isinstance(command, commands.StartDrainTimer) for command in step.commands
    )


def consuming(size: int) -> tuple[consumer.ConsumerRules, consumer.ConsumerState, commands.Work]:
    """So many partitions with eight records in work each."""
    rules = consumer.ConsumerRules(executors=8 * size, partition=partition.PartitionRules(window_max=8))
    partitions = [TopicPartition("topic", number) for number in range(size)]
    owned = [state for _, state, _ in (busy(8, each) for each in partitions) if isinstance(state, partition.Owned)]
    return rules, consumer.ConsumerState(tuple(owned)), busy(8)[2]


@table.case(consumer, "a record of one partition is done", PARTITIONS)
def stepping(size: int) -> Made[consumer.ConsumerStep]:
    rules, state, work = consuming(size)
    event = one_reported(work)
    return lambda: rules.step(state, event), lambda step: step.state.running == 8 * size - 1


@table.case(consumer, "what to poll", PARTITIONS)
def polling_them(size: int) -> Made[backpressure.Plan[TopicPartition]]:
    rules, state, _ = consuming(size)
    return lambda: rules.polling(state, ()), lambda plan: len(plan.poll) == size


@table.case(health, "a look at a consumer", PARTITIONS)
def looking(size: int) -> Made[health.Watch]:
    _, state, _ = consuming(size)
    assigned = {part.partition: part.generation for part in state.partitions}
    watch = health.looked(health.Watch(), health.sights(state, assigned), Instant(0))
    return (
        lambda: health.looked(watch, health.sights(state, assigned), Instant(1)),
        lambda after: len(after.stands) == size,
    )


@table.case(commit_pacing, "commits of all partitions are due", PARTITIONS)
def pacing(size: int) -> Made[commit_pacing.Turn]:
    _, state, _ = consuming(size)
    pace = commit_pacing.Pace()
    for part in state.partitions:
        pace = commit_pacing.asked(pace, commands.Commit(part.partition, part.generation, 1))
    return (
        lambda: commit_pacing.due(pace, Instant(0), 1, hurries=False),
        lambda turn: len(turn.requests[0]) == size,
    )


@table.case(worker, "asked to stop", PARTITIONS)
def stopping(size: int) -> Made[worker.ShutdownStep]:
    its_rules, its_state, _ = consuming(size)
    rules, state = worker.WorkerRules(its_rules), worker.WorkerState(consumer=its_state)
    return (
        lambda: rules.step(state, worker.StopRequested()),
        lambda step: step.state.phase is worker.ShutdownPhase.DRAINING and len(step.state.consumer.partitions) == size,
    )


@table.case(commands, "what a reply means")
def answering(_: int) -> Made[commands.Event | None]:
    commit, reply = commands.Commit(HERE, 1, 500), Ambiguous("timed out")
    return lambda: commands.event_for(commit, reply), lambda event: isinstance(event, commands.CommitUnknown)


RULES: Final = delivery.DeliveryRules()
UNDELIVERED: Final = delivery.Failed(1, Ambiguous("timed out"), delivery.Action.RETRY, NOW, PPM // 2)


@table.case(delivery, "an attempt fails")
def delivering_again(_: int) -> Made[delivery.Payload]:
    return (
        lambda: delivery.step(RULES, delivery.Sending(), UNDELIVERED),
        lambda payload: isinstance(payload, delivery.Sending) and payload.attempt == 2,
    )


@table.case(delivery, "one of this many is delivered", PAYLOADS)
def acknowledging_one(size: int) -> Made[delivery.OffsetDelivery]:
    outbox, event = delivery.added(delivery.OffsetDelivery(), size), delivery.Acknowledged()
    return (
        lambda: delivery.updated(RULES, outbox, size // 2, event),
        lambda after: isinstance(after.payloads[size // 2], delivery.Delivered),
    )


@table.case(delivery, "is the offset done?", PAYLOADS)
def judging(size: int) -> Made[delivery.Complete | delivery.Incomplete]:
    outbox = delivery.OffsetDelivery((delivery.Delivered(),) * size, sealed=True)
    return lambda: delivery.completion(outbox), lambda answer: answer == delivery.Complete(size, 0, 0)


@table.case(circuit_breaker, "may it be tried?")
def admitting_one(_: int) -> Made[circuit_breaker.Admit | circuit_breaker.HoldBack]:
    breaker, state = circuit_breaker.CircuitBreaker(), circuit_breaker.Open(1, BACK_THEN)
    return lambda: circuit_breaker.admit(breaker, state, NOW), lambda answer: isinstance(answer, circuit_breaker.Admit)


@table.case(circuit_breaker, "an outcome arrives")
def opening_it(_: int) -> Made[circuit_breaker.CircuitState]:
    breaker, state = circuit_breaker.CircuitBreaker(), circuit_breaker.Closed(1, 4)
    return (
        lambda: circuit_breaker.recorded(breaker, state, 1, circuit_breaker.AttemptOutcome.UNANSWERED, NOW),
        lambda after: isinstance(after, circuit_breaker.Open),
    )


@table.case(outbox, "an attempt is answered", PAYLOADS)
def answered_one(size: int) -> Made[outbox.OutboxStep]:
    attempt = outbox.Deliver((0,), 0)
    sender, state = outbox.OutboxRules(batch=1), outbox.OutboxState(waiting=tuple(range(1, size)), under_way=(attempt,))
    event = outbox.AttemptEnded((0,), 0, (None,), NOW)
    return lambda: sender.step(state, event), lambda step: len(step.commands) == min(sender.most, size - 1)


def dead(size: int) -> dead_letters.DeadLetter:
    failures = delivery.Failures(3, BACK_THEN, NOW, "timed out")
    record = Record("topic", 0, 7, key=b"key", value=drawn(size).randbytes(size))
    return dead_letters.dead_letter(delivery.DeadLettering(failures), record, "sink", 0, record.value)


@table.case(dead_letters, "encode", BYTES)
def burying(size: int) -> Made[bytes]:
    letter = dead(size // 2)
    return lambda: dead_letters.encode(letter), lambda data: len(data) > size


@table.case(dead_letters, "decode", BYTES)
def digging_up(size: int) -> Made[dead_letters.DeadLetter | dead_letters.Undecodable]:
    letter = dead(size // 2)
    data = dead_letters.encode(letter)
    return lambda: dead_letters.decode(data), lambda answer: answer == letter


@table.case(dead_records, "a record for the dead-letter topic")
def giving_up(_: int) -> Made[Send]:
    record = Record("topic", 0, 1, value=b"v" * 100, key=b"k")
    why = dead_records.GivenUp(group="group", attempts=3, error="ValueError", message="no", at=NOW)
    return (
        lambda: dead_records.dead_record(record, why, "topic.dead"),
        lambda letter: letter.value == record.value,
    )


@table.case(pauses, "how long after the third attempt?")
def pausing(_: int) -> Made[Sleep]:
    return lambda: pauses.PAUSES.after(3), lambda answer: answer.duration == 4 * pauses.PAUSES.after(1).duration


@table.case(budget, "are there too many?")
def paying(_: int) -> Made[budget.BudgetVerdict]:
    return lambda: budget.pay(budget.Budget(), 500), lambda answer: answer == budget.Paid(490)


@table.case(backoff, "again, and when?")
def retrying(_: int) -> Made[backoff.RetryVerdict]:
    policy = backoff.Policy(jitter_ppm=PPM // 10)
    return lambda: backoff.decide(policy, 3, BACK_THEN, NOW, PPM // 2), lambda answer: isinstance(answer, backoff.Retry)


@table.case(failures, "a failure of an effect")
def retrying_effect(_: int) -> Made[failures.FailureVerdict]:
    tried = failures.failed(Ambiguous("timed out"), NOW)
    return (
        lambda: failures.decide_failure(failures.ARTICLE, failures.Operation.INSERT, tried, NOW),
        lambda answer: not isinstance(answer, failures.PassOn),
    )


@table.case(polling, "which source is next", SOURCES)
def taking_turns(size: int) -> Made[polling.Turn[int]]:
    draw, bounds = drawn(size), polling.PollingBounds()
    paces = {source: polling.Pace(NOW + -draw.randrange(SECOND), 500 * MILLISECOND) for source in range(size)}
    return lambda: polling.turn(bounds, paces, NOW, PPM // 2), lambda turn: isinstance(turn, polling.Ask)
