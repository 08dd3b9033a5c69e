"""Is there an order in which the operations could have happened one by one? Linearizability of a recorded history.

A history is what processes asked and were answered, in the order of events: each operation lies between its beginning and its end.
It is linearizable if every operation can be thought to happen at one point in between, so that a sequential model answers
each as it was answered. An operation without an answer may have happened at any time after its beginning, or never.

After Herlihy and Wing 1990; the search is that of Wing and Gong 1993 with the memory of Lowe 2017, as in Porcupine. Keys are
judged apart, for a history is linearizable exactly if that of each key is (Herlihy and Wing, locality); so the model must
not let one key depend on another. They are judged side by side, a little of each in turn: a key that is soon seen to fail
does not wait for one that takes long.

Programs record with notes, which adapters ignore: `await Note(BEGAN, what)` before an operation and `await Note(ENDED, reply)`
after it. In the simulator the meaning `recording` keeps them in one cell, so that states with different histories stay
different, and `Linearizable` is a law over that cell.

Laws
    LI1  An order that is answered has every operation with an answer once, keeps apart what did not overlap, and the model
         answers in it what was answered.
    LI2  If there is such an order, one is answered; if there is none, that is.
    LI3  Where there is none, the order that is answered with it satisfies LI1 for the operations in it, and none is longer.

Known not to work: a history with many operations that overlap and never end takes exponential time, as any such search does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Final, Protocol, TypeAlias, final

import attrs

from tidegate.model.documents import exactly
from tidegate.model.effects import Effect, Note
from tidegate.model.errors import Misuse
from tidegate.sim.world import Cell, Meaning, Outcomes, World, life, perform

_TURN: Final = 1_000
"""How many steps a key is judged before it is another one's turn."""
BEGAN: Final = "began"
ENDED: Final = "ended"


@final
@attrs.frozen
class Began:
    """A process asks for something."""

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
"""(state, what is asked) -> (next state, reply): what a single process would see."""


@final
@attrs.frozen
class Operation:
    """One operation of a history.

    Attributes:
        process: Whose it is.
        what: What was asked.
        begin: Which event of the history began it.
        end: Which event ended it; None if none did.
        reply: The reply, if it has ended.
    """

    process: str
    what: object
    begin: int
    end: int | None = None
    reply: object = None


@final
@attrs.frozen
class Linearized:
    """It is linearizable, for example in this order."""

    order: tuple[Operation, ...]


@final
@attrs.frozen
class NotLinearizable:
    """It is not.

    Attributes:
        key: Of these operations.
        longest: A longest order that is possible for some of them.
        left: The operations that ended and are not in it.
    """

    key: object
    longest: tuple[Operation, ...]
    left: tuple[Operation, ...]


class HistoryState(Protocol):
    """What a law may look at."""

    def read(self, cell: Cell[History], /) -> History: ...


HISTORY: Final = Cell[History](("operations",), ())


def recording(otherwise: Meaning = perform) -> Meaning:
    """A meaning that keeps the history: the notes BEGAN and ENDED of all processes, in the order of events.

    After a restart a process counts as another one: it gets no reply to what it asked for before.
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
    """The key of a model that has no keys."""
    return None


@final
@attrs.frozen
class Linearizable:
    """The law that the history of a state is linearizable.

    Attributes:
        first: The state that the model begins in, for each key.
        apply: What the model does.
        key: Which key an operation is about; operations on different keys do not concern each other.
    """

    first: Hashable
    apply: Apply
    key: Callable[[object], Hashable] = _whole

    def __call__(self, state: HistoryState) -> bool:
        return isinstance(self.judge(state.read(HISTORY)), Linearized)

    def judge(self, history: History) -> Linearized | NotLinearizable:
        """Judge the operations of each key; the key that is first seen to fail is reported."""
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
    """The operations of a history, in the order in which they began.

    Raises:
        Misuse: a process begins a second operation before its first has ended, or ends one that it has not begun.
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
    """A longest possible order of the operations, and whether all that have ended are in it; None for each step before.

    Depth first over (which are done, state of the model); what was tried in vain is not tried again. Replies and states are
    compared with their types: 1 is not True.
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
    """Which of those not done may come next: they began before any of the others had ended."""
    soonest: int | None = None
    could: list[int] = []
    low = (~done & (done + 1)).bit_length() - 1  # those before it are done
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
    """One order of all, that keeps that of each key, and what did not overlap: who must come next is next."""
    left = [list(order) for order in orders if order]
    found: list[Operation] = []
    while left:
        soonest = [min((each.end for each in order if each.end is not None), default=None) for order in left]
        bound = min((end for end in soonest if end is not None), default=None)
        index = next(index for index, order in enumerate(left) if bound is None or order[0].begin < bound)
        found.append(left[index].pop(0))
        left = [order for order in left if order]
    return tuple(found)
