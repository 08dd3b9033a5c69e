"""Cases of what is decided about tasks that are triggered by changed documents."""

from __future__ import annotations

from typing import Any, Final

import attrs
from benchmarks.cases.table import BACK_THEN, BATCH, BYTES, NOW, RECORDS, SOURCES, Made, Table, drawn

from tidegate.model import record_counts
from tidegate.model.documents import Document
from tidegate.model.instants import SECOND, Instant
from tidegate.reactive.planning import change_stream, evolution, reconciliation
from tidegate.reactive.record import debounce, orphans, record_queries, snapshot, task_documents, task_records, tasks
from tidegate.reactive.record import timeline as story
from tidegate.reactive.task import plan_queries, worker
from tidegate.reactive.task.fetching import Run
from tidegate.retries import contention
from tidegate.work import events, vocabulary
from tidegate.work import worker as work
from tidegate.work.state import WorkerState, WorkerStep

table: Final = Table("Tasks triggered by changed documents")


def order(size: int) -> Document:
    """A document of about this many bytes: lines of texts and numbers."""
    draw = drawn(size)
    lines = [{"name": draw.randbytes(10).hex(), "count": draw.randrange(100)} for _ in range(size // 50)]
    return Document.of({"_id": "order", "state": "open", "lines": lines, "address": {"city": "Bern", "code": 3000}})


def changed(document: Document) -> Document:
    """With another value in its last line."""
    items = dict(document.items)
    lines = items["lines"]
    assert isinstance(lines, tuple)
    return Document.of({**items, "lines": (*lines[:-1], {"name": "changed", "count": 0})})


@table.case(snapshot, "the whole document", BYTES)
def snapping(size: int) -> Made[Document | snapshot.NotComputed]:
    document, whole = order(size), snapshot.Projection()
    return lambda: snapshot.snapshot(document, whole), lambda seen: seen == document


@table.case(snapshot, "three paths of it", BYTES)
def projecting(size: int) -> Made[Document | snapshot.NotComputed]:
    document, paths = order(size), snapshot.Projection(("address.city", "lines.count", "state"))
    return (
        lambda: snapshot.snapshot(document, paths),
        lambda seen: isinstance(seen, Document) and [key for key, _ in seen.items] == ["address", "lines", "state"],
    )


@table.case(snapshot, "diff, nothing changed", BYTES)
def comparing(size: int) -> Made[snapshot.SnapshotVerdict]:
    before, after = order(size), order(size)
    return lambda: snapshot.changed(before, after), lambda answer: answer == snapshot.Unchanged()


@table.case(snapshot, "diff, one line changed", BYTES)
def differing(size: int) -> Made[snapshot.SnapshotVerdict]:
    before = order(size)
    after = changed(before)
    return (
        lambda: snapshot.changed(before, after),
        lambda answer: isinstance(answer, snapshot.Changed) and len(answer.patch) <= 2,
    )


@table.case(snapshot, "digest", BYTES)
def digesting(size: int) -> Made[snapshot.Digest]:
    document, other = order(size), changed(order(size))
    return lambda: snapshot.digest(document), lambda answer: answer != snapshot.digest(other)


TASK: Final = tasks.TaskRules()


def planned(document: Document) -> task_records.TaskRecord:
    """The record of a document at first sight."""
    first = tasks.plan(None, tasks.Matching(document), rules=TASK, now=BACK_THEN, new_id="record")
    assert isinstance(first, tasks.InsertRecord)
    return first.record


def claimed() -> tuple[task_records.TaskRecord, tasks.Claim, tasks.Seen]:
    document = order(1_000)
    claimed = tasks.claim(planned(document), worker="worker", rules=TASK, now=NOW)
    assert isinstance(claimed, tasks.Claimed)
    return claimed.write.record, claimed.claim, tasks.Matching(document)


@table.case(tasks, "a changed document is seen", BYTES)
def seeing(size: int) -> Made[tasks.PlanVerdict]:
    document = order(size)
    record, seen = planned(document), tasks.Matching(changed(document))
    return (
        lambda: tasks.plan(record, seen, rules=TASK, now=NOW, new_id="new"),
        lambda answer: isinstance(answer, tasks.UpdateRecord) and answer.why is tasks.Why.CHANGED,
    )


@table.case(tasks, "may a worker run it?")
def claiming_task(_: int) -> Made[tasks.ClaimVerdict]:
    record = planned(order(1_000))
    return (
        lambda: tasks.claim(record, worker="worker", rules=TASK, now=NOW),
        lambda answer: isinstance(answer, tasks.Claimed),
    )


@table.case(tasks, "does the handler begin?")
def beginning(_: int) -> Made[tasks.BeginVerdict]:
    record, claim, seen = claimed()
    return (
        lambda: tasks.begin(record, claim, seen, rules=TASK, now=NOW),
        lambda answer: isinstance(answer, tasks.Go),
    )


@table.case(tasks, "a run succeeds")
def finalising(_: int) -> Made[tasks.UpdateRecord | tasks.Leave]:
    record, claim, _seen = claimed()
    return (
        lambda: tasks.finalise(record, claim, tasks.Succeeded(), rules=TASK, now=NOW + SECOND),
        lambda answer: isinstance(answer, tasks.UpdateRecord) and answer.why is tasks.Why.SUCCEEDED,
    )


@table.case(task_records, "made of what was read")
def recording(_: int) -> Made[task_records.TaskRecord]:
    record, _claim, _seen = claimed()
    read: dict[str, Any] = {field.name: getattr(record, field.name) for field in attrs.fields(type(record))}
    return lambda: task_records.TaskRecord(**read), lambda made: made == record


@table.case(plan_queries, "must a planner look again?", BYTES)
def asking(size: int) -> Made[bool]:
    document = order(size)
    query = plan_queries.FindChanged("tasks", "orders", "bill", snapshot.Projection(), None, 100)
    record = task_documents.stored(planned(document), "bill", "order")
    # Of a large snapshot only a digest is kept, which a query does not compare.
    return (
        lambda: plan_queries.must_look(query, document, (record,)),
        lambda must: must is (size > TASK.snapshot_bytes_max),
    )


@table.case(record_counts, "records are counted", RECORDS)
def counting(size: int) -> Made[tuple[record_counts.RecordCount, ...]]:
    record = planned(order(1_000))
    stored = tuple(task_documents.stored(record, "bill", number) for number in range(size))
    query = record_counts.CountRecords("c", ("bill",), (record.status.value,), task_documents.DUE_AT)
    return lambda: record_counts.counted(query, stored), lambda counts: [each.count for each in counts] == [size]


@table.case(record_queries, "a record is read for a list")
def listing(_: int) -> Made[record_queries.RecordRow]:
    stored = task_documents.stored(planned(order(1_000)), "bill", 7)
    return lambda: record_queries.row(stored), lambda row: row.document == 7 and row.record is not None


@table.case(story, "of a record with ten runs")
def telling(_: int) -> Made[tuple[story.Moment, ...]]:
    runs = tuple(
        task_records.RunEnd(token, task_records.Ended.SUCCEEDED, BACK_THEN + token * SECOND, SECOND)
        for token in range(1, 11)
    )
    record = attrs.evolve(planned(order(1_000)), history=runs)
    return lambda: story.story(record), lambda moments: len(moments) == 2 * len(runs) + 3


@table.case(contention, "records are drawn", RECORDS)
def drawing(size: int) -> Made[tuple[int, ...]]:
    found = tuple(f"bill#{number}" for number in range(size))
    return lambda: contention.drawn(found, size // 4, "worker 1 at 7"), lambda places: len(places) == size // 4


@table.case(work, "handlers of a batch end by lease, of as many as run", RECORDS)
def working(size: int) -> Made[WorkerStep]:
    batch = min(size, 1_000)
    rules = vocabulary.WorkerRules(
        queues=(vocabulary.Queue(name="bill", lease=TASK.lease),),
        results=worker.TaskResults(),
        concurrency=size,
        batch=batch,
    )
    ended: tuple[tuple[vocabulary.Run, None], ...] = ()
    record, claim, _seen = claimed()
    reducer = work.Worker(rules)
    step = reducer.step(WorkerState(), events.TimerFired(BACK_THEN))
    for first in range(0, size, batch):
        claims = (attrs.evolve(claim, id=f"r{key}") for key in range(first, first + batch))
        runs = tuple(worker.run_of("bill", Run(each.id, record, each)) for each in claims)
        (poll,) = (each for each in step.commands if isinstance(each, vocabulary.Poll))
        step = reducer.step(step.state, events.PollCompleted(BACK_THEN, poll, vocabulary.PollResult(runs)))
        ended = ended or tuple((run, None) for run in runs[:BATCH])
    state = step.state
    told = events.HandlersEnded(BACK_THEN + SECOND, ended)
    return lambda: reducer.step(state, told), is_written


def is_written(step: WorkerStep) -> bool:
    writes = [each for each in step.commands if isinstance(each, vocabulary.WriteResults)]
    return [len(each.results) for each in writes] == [BATCH]


@table.case(debounce, "due")
def waiting(_: int) -> Made[Instant]:
    patience = debounce.Debounce()
    return lambda: debounce.due(patience, BACK_THEN, NOW), lambda at: at == BACK_THEN + 10 * SECOND


@table.case(evolution, "what has to be done over")
def evolving(_: int) -> Made[tuple[evolution.Action, ...]]:
    before = evolution.Definition(Document.of({"filter": {"state": "open"}}))
    after = evolution.Definition(Document.of({"filter": {"state": "paid"}}), 2)
    policy = evolution.EvolutionPolicy(on_new_version=evolution.OnNewVersion.REPROCESS_ALL)
    return lambda: evolution.evolve(before, after, policy), lambda actions: len(actions) == 3


@table.case(orphans, "is it of any use still?")
def cleaning(_: int) -> Made[orphans.SweepVerdict]:
    gone = attrs.evolve(planned(order(1_000)), snapshot=None)  # as a look leaves it that finds no document
    policy, later = orphans.CleanUp(), NOW + 2 * orphans.DAY
    return (
        lambda: orphans.clean_up(gone, orphans.Source.GONE, policy, later),
        lambda answer: isinstance(answer, orphans.RemoveRecord),
    )


@table.case(change_stream, "a page is received", RECORDS)
def receiving(size: int) -> Made[change_stream.StreamStep]:
    consumer = change_stream.ChangeStreamConsumer(size=size)
    led = consumer.step(change_stream.Following(), change_stream.Elected(1, 1, change_stream.After("here")))
    (read,) = (command for command in led.commands if isinstance(command, change_stream.Read))
    changes = tuple(change_stream.DocumentChange("orders", number) for number in range(size))
    page = change_stream.Received(read, change_stream.Page(changes, change_stream.After("there")))
    return (
        lambda: consumer.step(led.state, page),
        lambda step: any(isinstance(command, change_stream.HandleChanged) for command in step.commands),
    )


@table.case(reconciliation, "what is still to be scanned", SOURCES)
def scanning(size: int) -> Made[tuple[reconciliation.Scan, ...]]:
    triggers = {f"c{n}": frozenset({reconciliation.TaskTrigger(f"t{n}", "new")}) for n in range(size)}
    progress = reconciliation.Progress(1, frozenset({reconciliation.TaskTrigger("t0", "new")}))
    return lambda: reconciliation.scans(progress, triggers), lambda left: len(left) == size - 1


@table.case(reconciliation, "is it time to sweep?")
def sweeping(_: int) -> Made[reconciliation.BeginSweep | reconciliation.SweepLater | reconciliation.SkipSweep]:
    sweeps = reconciliation.Sweeps(BACK_THEN)
    return (
        lambda: reconciliation.decide_sweep(sweeps, 1, BACK_THEN + SECOND),
        lambda answer: isinstance(answer, reconciliation.SweepLater),
    )
