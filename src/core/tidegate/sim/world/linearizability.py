"""Linearizability of a recorded history: could its operations have happened one by one?

A history lists requests and replies in the order of events. It is linearizable if a sequential
model gives the recorded replies in some order. In it, each operation takes effect between its
beginning and its end; an operation without a reply, at any later time or never.

After Herlihy and Wing 1990; the search is that of Wing and Gong 1993 with the memory of Lowe 2017,
as in Porcupine. Keys are judged separately (Herlihy and Wing, locality), so the model must keep
them independent. Their searches alternate, so a key that fails soon need not wait for a slow one.

Programs record with notes, which adapters ignore: `await Note(BEGAN, what)` before an operation and
`await Note(ENDED, reply)` after it. The meaning `recording` keeps them in one cell, so states with
different histories stay different. `Linearizable` is a law over that cell.

Laws
    LI1  A returned order has every completed operation once and respects the order of operations
         that do not overlap. The model gives the recorded replies in it.
    LI2  If such an order exists, one is returned; if none exists, that is the answer.
    LI3  If none exists, the order returned satisfies LI1 for its own operations, and none is
         longer.

Known not to work: many overlapping operations that never end take exponential time, as in any such
search.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Final, Protocol, TypeAlias, final

import attrs

from tidegate.model.documents import exactly
from tidegate.model.effects import Effect, Note
from tidegate.model.errors import Misuse
from tidegate.sim.world.world import Cell, Meaning, Outcomes, World, life, perform

_TURN: Final = 1_000
BEGAN: Final = "began"
ENDED: Final = "ended"


@final
@attrs.frozen
class Began:
    """A process begins an operation."""

    process: str
    what: object


@final
@attrs.frozen
class Ended:
    """The process gets the reply."""

    process: str
    reply: object


History: TypeAlias = tuple[Began | Ended, ...]
Apply: TypeAlias = Callable[[Hashable, object], "tuple[Hashable, object]"]
"""Maps (state, request) to (next state, reply), as in a single process."""


@final
@attrs.frozen
class Operation:
    """One operation of a history.

    Attributes:
        process: Its process.
        begin: The index of its first event in the history.
        end: The index of its last event; None if it has not ended.
    """

    process: str
    what: object
    begin: int
    end: int | None = None
    reply: object = None


@final
@attrs.frozen
class Linearized:
    """The history is linearizable, for example in this order."""

    order: tuple[Operation, ...]


@final
@attrs.frozen
class NotLinearizable:
    """The history is not linearizable.

    Attributes:
        key: The key of these operations.
        longest: A longest valid order of some of them.
        left: The completed operations that are not in it.
    """

    key: object
    longest: tuple[Operation, ...]
    left: tuple[Operation, ...]


class HistoryState(Protocol):
    """The part of a state that the law reads."""

    def read(self, cell: Cell[History], /) -> History: ...


HISTORY: Final = Cell[History](("operations",), ())


def recording(otherwise: Meaning = perform) -> Meaning:
    """A meaning that keeps the history: all notes BEGAN and ENDED, in order.

    A restarted process counts as another one.
    """

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Note(name, value) if name in (BEGAN, ENDED):
                lives = world.read(life(who))
                process = f"{who}, life {lives + 1}" if lives else who
                event = Began(process, value) if name == BEGAN else Ended(process, value)
                yield world.write(HISTORY, (*world.read(HISTORY), event)), None
            case _:
                yield from otherwise(effect, world, who)

    return meaning


def _whole(what: object) -> Hashable:  # noqa: ARG001  one key for all
    return None


@final
@attrs.frozen
class Linearizable:
    """The law that the history of a state is linearizable.

    Attributes:
        first: The initial state of the model for each key.
        key: Maps a request to its key. Operations on different keys are independent.
    """

    first: Hashable
    apply: Apply
    key: Callable[[object], Hashable] = _whole

    def __call__(self, state: HistoryState) -> bool:
        return isinstance(self.judge(state.read(HISTORY)), Linearized)

    def judge(self, history: History) -> Linearized | NotLinearizable:
        by_key: dict[object, list[Operation]] = {}
        for operation in operations(history):
            by_key.setdefault(exactly(self.key(operation.what)), []).append(operation)
        searches = {key: _longest_order(each, self.first, self.apply) for key, each in by_key.items()}
        orders: dict[object, tuple[Operation, ...]] = {}
        while searches:
            for key, search in [*searches.items()]:
                for found in islice(search, _TURN):
                    if found is None:
                        continue
                    del searches[key]
                    orders[key], is_whole = found
                    if not is_whole:
                        done = {operation.begin for operation in orders[key]}
                        left = (each for each in by_key[key] if each.end is not None and each.begin not in done)
                        return NotLinearizable(self.key(by_key[key][0].what), orders[key], tuple(left))
        return Linearized(_merged([orders[key] for key in by_key]))


def operations(history: History) -> tuple[Operation, ...]:
    """The operations of a history, by beginning.

    Raises:
        Misuse: A process begins an operation before its last one ended, or ends one that it has not
            begun.
    """
    found: list[Operation] = []
    running: dict[str, int] = {}
    for at, event in enumerate(history):
        match event:
            case Began(process, what):
                if process in running:
                    raise Misuse(f"{process} begins an operation while another one of it runs", where=f"event {at}")
                running[process] = len(found)
                found.append(Operation(process, what, at))
            case Ended(process, reply):
                if process not in running:
                    raise Misuse(f"{process} ends an operation that it has not begun", where=f"event {at}")
                index = running.pop(process)
                found[index] = attrs.evolve(found[index], end=at, reply=reply)
    return tuple(found)


def _longest_order(
    operations: list[Operation], first: Hashable, apply: Apply
) -> Iterator[tuple[tuple[Operation, ...], bool] | None]:
    """A longest valid order, and whether it has all completed operations; None for each step
    before.

    Depth first over (operations done, model state), with failed combinations remembered. Comparison
    includes types: 1 is not True.
    """
    ended = sum(1 << index for index, operation in enumerate(operations) if operation.end is not None)
    replies = [exactly(operation.reply) for operation in operations]
    tried: set[tuple[int, object]] = {(0, exactly(first))}
    order: list[int] = []
    best: list[int] = []
    best_ended = 0
    done, state = 0, first
    stack = [(done, state, _following(operations, done))]
    while stack:
        if done & ended == ended:
            yield tuple(operations[index] for index in order), True
            return
        if (done & ended).bit_count() > best_ended:
            best, best_ended = [*order], (done & ended).bit_count()
        yield None
        done, state, could = stack[-1]
        for index in could:
            after, reply = apply(state, operations[index].what)
            place = (done | 1 << index, exactly(after))
            if (operations[index].end is None or exactly(reply) == replies[index]) and place not in tried:
                tried.add(place)
                done, state = place[0], after
                order.append(index)
                stack.append((done, state, _following(operations, done)))
                break
        else:
            stack.pop()
            if order:
                order.pop()
    yield tuple(operations[index] for index in best), False


def _following(operations: list[Operation], done: int) -> Iterator[int]:
    """The operations that may come next: they began before any other unfinished one ended."""
    soonest: int | None = None
    could: list[int] = []
    low = (~done & (done + 1)).bit_length() - 1  # all operations before it are done
    for index in range(low, len(operations)):
        operation = operations[index]
        if soonest is not None and operation.begin > soonest:
            break
        if not done >> index & 1:
            could.append(index)
            if operation.end is not None and (soonest is None or operation.end < soonest):
                soonest = operation.end
    return iter(could)


def _merged(orders: list[tuple[Operation, ...]]) -> tuple[Operation, ...]:
    """One order of all that respects each key's order, and that of operations that do not
    overlap.
    """
    left = [list(order) for order in orders if order]
    found: list[Operation] = []
    while left:
        soonest = [min((each.end for each in order if each.end is not None), default=None) for order in left]
        bound = min((end for end in soonest if end is not None), default=None)
        index = next(index for index, order in enumerate(left) if bound is None or order[0].begin < bound)
        found.append(left[index].pop(0))
        left = [order for order in left if order]
    return tuple(found)
