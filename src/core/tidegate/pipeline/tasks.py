"""Which tasks a hook may ask for, and which number each gets.

Law TK1: every task is for records of its window, and no two live tasks of a partition have one id.
Law TK2: a task keeps its number, and new tasks get the next numbers in their order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from tidegate.model.errors import shown
from tidegate.model.values import check_int, check_type, check_types
from tidegate.pipeline.effects import TaskSpec

T = TypeVar("T")


def refused_tasks(specs: Sequence[TaskSpec], offsets: Collection[int], live: Collection[str]) -> str | None:
    """Why a hook may not ask for these tasks; None if it may.

    Args:
        specs: The tasks that it asks for.
        offsets: The records that it was called with.
        live: The ids of the unsettled tasks of the partition, without one that these replace.
    """
    check_type(specs, Sequence, "tasks")
    check_types(offsets, int, "an offset")
    check_type(live, Collection, "ids of tasks")
    for spec in specs:
        check_type(spec, TaskSpec, "a task")
    for each_id in live:
        check_type(each_id, str, "the id of a task")
    known, there = {*live}, {*offsets}
    for each in specs:
        if not each.offsets:
            return f"task {shown(each.id)} is for no record: pass record= or offsets="
        if not there.issuperset(each.offsets):
            strange = next(offset for offset in each.offsets if offset not in there)
            return f"task {shown(each.id)} is for record {strange}, which is not in the window"
        if each.id in known:
            return f"there is a live task {shown(each.id)} already: give each task an id of its own"
        known.add(each.id)
    return None


def tasks_after(known: tuple[T, ...], made: Sequence[T], count: int) -> tuple[T, ...]:
    """The tasks of a window, by number, after an event that may have added some.

    Args:
        known: The tasks before the event.
        made: The tasks that the event names.
        count: How many tasks the window has now; the event was ignored if it has no more than before.
    """
    check_type(known, tuple, "the tasks of a window")
    check_type(made, Sequence, "new tasks")
    check_int(count, "a number of tasks", 0)
    return known if count <= len(known) else (*known, *made)
