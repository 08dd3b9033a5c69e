from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from os import environ
from pathlib import Path
from pkgutil import walk_packages
from typing import Final

import attrs
import pytest

import tidegate
from tidegate.consumer import fanout
from tidegate.consumer.flow import drain
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.protocol import commands
from tidegate.consumer.protocol.commands import CommitUnknown, DrainTimerFired, SlotFreed
from tidegate.consumer.worker import worker
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.consumer.worker.worker import StopRequested, WorkerRules, WorkerState
from tidegate.model import documents, effects, instants, operations, records
from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Lt, Push, Put
from tidegate.model.effects import Call, Failure, Note, Now, Sleep
from tidegate.model.operations import find_one, find_one_and_update
from tidegate.model.records import TopicPartition
from tidegate.sim.program.recording import Other, Recording, Same, executed, header, read, stepped
from tidegate.sim.program.tagged import named_classes, tagged, untagged
from tidegate.sim.program.type_names import FIELDS, NAMES, RENAMED, ROOMS, name_of, upgraded

GIVEN: Final = Path(__file__).parent / "type_names.txt"
RECORDINGS: Final = Path(__file__).parent / "recordings"
APART: Final = frozenset({"laws", "scenarios", "specimens", "strategies", "sim", "testing", "conformance", "__main__"})


def classes() -> Iterator[type]:
    for found in walk_packages(tidegate.__path__, "tidegate."):
        if APART.isdisjoint(found.name.split(".")):
            space = vars(import_module(found.name))
            for kind in space.values():
                is_public = isinstance(kind, type) and kind.__module__ == found.name and kind.__name__[0] != "_"
                if is_public and (hasattr(kind, "__attrs_attrs__") or issubclass(kind, Enum)):
                    yield kind


KINDS: Final = tuple(classes())


def test_no_two_types_are_called_alike() -> None:
    counted = Counter(map(name_of, KINDS))
    assert [name for name, count in counted.items() if count > 1] == []


def test_every_name_that_is_given_by_hand_is_of_a_type() -> None:
    assert {f"{kind.__module__}.{kind.__qualname__}" for kind in KINDS} >= NAMES.keys()


def test_a_name_once_given_stays() -> None:
    """Files contain it. TIDEGATE_GOLDEN=write adds names; remove one only if no file has it."""
    now = {name_of(kind) for kind in KINDS}
    if environ.get("TIDEGATE_GOLDEN") == "write":
        GIVEN.write_text("".join(f"{name}\n" for name in sorted(now)), encoding="utf-8")
    assert sorted(now) == GIVEN.read_text(encoding="utf-8").split()


def test_a_class_of_the_user_is_called_by_its_module() -> None:
    assert name_of(Path) == f"{Path.__module__}.Path"
    assert name_of(CommitUnknown) == "consumer.CommitUnknown"
    assert name_of(tidegate.ExitCode).startswith("exit_codes.")


# --- recordings of the first version ------------------------------------------------------------------------------------

OURS: Final = named_classes(
    each
    for module in (commands, documents, drain, effects, fanout, instants, operations, records, worker)
    for each in vars(module).values()
)


def recorded(name: str, version: int = 1) -> Recording:
    return read((RECORDINGS / f"{name}.v{version}.jsonl").read_text(encoding="utf-8"))


def test_what_old_names_became_is_there() -> None:
    by_name = {name_of(kind): kind for kind in KINDS}
    assert by_name.keys() >= {*RENAMED.values(), *FIELDS}
    assert {kind.partition(".")[0] for kind in by_name} >= set(ROOMS.values())
    for name, fields in FIELDS.items():
        assert {each.name for each in by_name[name].__attrs_attrs__} >= set(fields.values())  # type: ignore[attr-defined]


async def counts(times: int) -> tuple[object, int]:
    count, seen = Field[int]("count"), Field[tuple[str, ...]]("seen")
    for turn in range(times):
        found = await find_one("counters", AllOf((Eq(ID, "c"), Lt(count, 9))))
        try:
            await find_one_and_update(
                "counters", Eq(ID, "c"), Put(count, (0 if found is None else found[count]) + 1), Push(seen, "x", 3)
            )
        except Failure:
            await Note("failed", turn)
    answer = await Call("send", (times, TopicPartition("orders", 0)))
    await Sleep(5)
    return answer, (await Now()).at


def test_an_old_recording_of_a_program_is_executed_again() -> None:
    assert executed(recorded("counts"), counts(2), OURS) == Same(9, "finished: [orders-0, 9000000]")
    assert isinstance(executed(recorded("counts"), counts(3), OURS), Other)


def test_an_old_recording_of_a_consumer_is_executed_again() -> None:
    rules = WorkerRules(ConsumerRules(partition=PartitionRules(hooks=True, fanout=fanout.Rules(task_delivery=True))))
    old = recorded("orders")
    events = {type(untagged(json.loads(each.asked), OURS)) for each in old.entries}
    assert events >= {CommitUnknown, DrainTimerFired, SlotFreed, StopRequested}
    first = attrs.evolve(old, entries=old.entries[:16], is_whole=False)
    assert stepped(first, WorkerState(), rules.step, OURS) == Same(16, "")

    # An unanswered commit was repeated at once then.
    found = stepped(old, WorkerState(), rules.step, OURS)
    assert isinstance(found, Other)
    assert (found.step, found.recorded) == (17, "commit orders-0 @1 (generation 1)")
    assert all(untagged(json.loads(each.answer), OURS) is not None for each in old.entries)


def test_a_recording_of_the_second_version_is_executed_again() -> None:
    old, rules = recorded("orders", 2), WorkerRules(ConsumerRules(executors=8))
    assert stepped(old, WorkerState(), rules.step, OURS) == Same(4, "")
    other = WorkerRules(ConsumerRules(executors=7))
    found = stepped(old, WorkerState(), other.step, OURS)
    assert isinstance(found, Other)
    assert (found.step, found.recorded.partition("; ")[2]) == (2, "handle 0-7 of orders-0 (generation 1)")


def test_a_recording_from_before_a_field_was_renamed_is_read() -> None:
    old = recorded("orders")
    entries = [attrs.evolve(each, answer=each.answer.replace('"request"', '"task"')) for each in old.entries]
    assert entries != [*old.entries]
    lines = [
        f'{{"i": {number}, "what": "", "event": {each.asked}, "commands": {each.answer}}}'
        for number, each in enumerate(entries, 1)
    ]
    text = "\n".join([header("orders", "reducer", "").rstrip(), *lines, ""])
    assert [each.answer for each in read(text).entries] == [each.answer for each in old.entries]


@pytest.mark.parametrize(
    "value", [Document.of({"wish": 1}), Eq(ID, "x"), drain.Stage.WAITING, (1, "tidegate.wishes.Fetch"), None]
)
def test_what_is_written_today_is_left_as_it_is(value: object) -> None:
    assert upgraded(tagged(value)) == tagged(value)
