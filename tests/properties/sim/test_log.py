from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.consumer.partition.partition import Ordering, PartitionRules, Unassigned
from tidegate.consumer.protocol.commands import Assigned, Fetch, Fetched, Handle, Records, Release, Work, event_for
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.servers.group import GROUP, Coordinator, Group, broker
from tidegate.sim.servers.log import CONTROL, Append, Compaction, Hole, LogEntry, Pause, Resume, begun, fetched, log
from tidegate.sim.servers.reducers import Machine, ReducerProcess
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import World, inbox

P0: Final = TopicPartition("t", 0)
BROKER: Final = broker()
ENTRIES: Final = st.lists(st.sampled_from([b"a", b"b", None, CONTROL, Hole.COMPACTED]), max_size=8).map(tuple)


@given(ENTRIES, st.integers(0, 9), st.integers(1, 9))
def test_what_is_fetched_are_the_next_records(entries: tuple[LogEntry, ...], position: int, most: int) -> None:
    """Law LO1."""
    read: list[tuple[int, LogEntry]] = []
    at = position
    while (page := fetched(entries, at, most)) is not None:
        assert 0 < len(page.offsets) <= most
        read += zip(page.offsets, page.keys, strict=True)
        at = page.offsets[-1] + 1
    assert read == [(n, key) for n, key in enumerate(entries) if n >= position and not isinstance(key, Hole)]


@given(ENTRIES)
def test_compaction_leaves_the_last_record_of_each_key(entries: tuple[LogEntry, ...]) -> None:
    """Laws LO2 and LO3, in any order; other offsets stay."""
    world: World = begun(0, *entries)
    while steps := list(Compaction((0,)).steps(world)):
        assert not any(step.must for step in steps)
        world = steps[-1].world
    left = world.read(log(0))
    last = {key: n for n, key in enumerate(entries)}
    assert len(left) == len(entries)
    assert all(
        now == was if not isinstance(was, bytes) or last[was] == n else now is Hole.COMPACTED
        for n, (now, was) in enumerate(zip(left, entries, strict=True))
    )


async def produces() -> object:
    return await Append(P0, b"k")


def test_a_producer_whose_request_comes_twice_has_two_records() -> None:
    faults = Faults.of(Fault.DUPLICATE, Fault.LOST_REPLY)
    producers = [Process(name, factory(produces), faults, BROKER) for name in ("p", "q")]

    def in_place(before: State, then: State) -> bool:
        old, new = before.read(log(0)), then.read(log(0))
        return new[: len(old)] == old

    scenario = Scenario(
        name="producers",
        summary="",
        world=begun(0),
        actors=(*producers, Network(BROKER)),
        budget=1,
        step={"no offset is used again": in_place},
        eventually={"two or three": lambda state: len(state.read(log(0))) in (2, 3)},
        sometimes={"three": lambda state: len(state.read(log(0))) == 3},
    )
    report = explore(scenario)
    assert report.verdict is Verdict.COMPLETE
    assert set(report.faults) == {Fault.DUPLICATE, Fault.LOST_REPLY}


def test_whoever_has_paused_receives_nothing_until_it_resumes() -> None:
    world: World = begun(0, b"k")
    ((waiting, _),) = BROKER(Pause(P0), world, "a")
    assert list(BROKER(Fetch(P0, 1, 0), waiting, "a")) == []
    assert [reply for _, reply in BROKER(Fetch(P0, 1, 0), waiting, "b")] == [Records((0,), (b"k",))]
    ((again, _),) = BROKER(Resume(P0), waiting, "a")
    assert [reply for _, reply in BROKER(Fetch(P0, 1, 0), again, "a")] == [Records((0,), (b"k",))]


async def fetches() -> None:
    await Fetch(P0, 1, 0)


def test_what_was_paused_is_forgotten_by_who_starts_again_or_gets_it_anew() -> None:
    """A pause belongs to that consumer and that assignment."""
    ((waiting, _),) = BROKER(Pause(P0), begun(0, b"k"), "a")
    coordinator = Coordinator("t", lambda member, _: member)
    anew = coordinator.assign(waiting, Group(1, ("a",), ("a",)))
    process = Process("a", factory(fetches), Faults.of(Fault.CRASH_BEFORE, Fault.RESTART), BROKER)
    reborn = process.reborn(waiting.write(process.place, 0))
    for world in (anew, reborn):
        assert [reply for _, reply in BROKER(Fetch(P0, 1, 0), world, "a")] == [Records((0,), (b"k",))]


# --- the shipped partition, on a log with keys and holes ----------------------------------------------------------------


def by_key(ordering: Ordering) -> Scenario:
    processor = PartitionRules(running_max=3, ordering=ordering, metadata_max=0, batch_max=1)

    consumer = ReducerProcess(
        "c", Unassigned(), processor.step, event_for, meaning=BROKER, split=lambda _: False,
        at_once=lambda command: isinstance(command, Release),
    )  # fmt: skip
    world = begun(0, b"x", CONTROL, b"y", b"x").write(GROUP, Group(1, ("c",), ("c",)))
    return Scenario(
        name="by key",
        summary="",
        world=world.write(inbox("c"), (Assigned(P0, 1, 0, "", 4),)),
        actors=(consumer, Compaction((0,))),
        always={"one of a key at a time": one_of_a_key},
        sometimes={"two keys at once": lambda state: len(worked(state)) == 2},
    )


def worked(state: State) -> list[int]:
    machine = state.status("c")
    commands = machine.commands if isinstance(machine, Machine) else ()
    return [
        offset
        for command in commands
        if isinstance(command, Work) and isinstance(command.request, Handle)
        for offset in command.offsets
    ]


def one_of_a_key(state: State) -> bool:
    return not {0, 3} <= set(worked(state))


def test_records_of_one_key_are_worked_on_one_after_the_other() -> None:
    assert explore(by_key(Ordering.BY_KEY)).verdict is Verdict.COMPLETE
    assert explore(by_key(Ordering.UNORDERED)).law == "one of a key at a time"


def test_a_reply_to_a_fetch_may_tell_keys() -> None:
    command = Fetch(P0, 1, 0)
    assert event_for(command, Records((0, 2), (b"k", None))) == Fetched(P0, 1, (0, 2), (b"k", None))
    assert event_for(command, (0, 2)) == Fetched(P0, 1, (0, 2))
    with pytest.raises(Misuse, match="1 keys of 2 records"):
        event_for(command, Records((0, 2), (b"k",)))
