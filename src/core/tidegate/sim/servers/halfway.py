"""Requests that take the store several steps, with other actors' steps in between.

    a write of many documents   All at once, or one document after the other in any order. The first
                                refused document may end it, also in a statement of a transaction
                                (done at once).
    an upsert                   If its filter has more than the id: it updates at once, or finds
                                none and inserts later.

A write by a filter begins before it writes. A document that begins to match later may be written
too, or end the write; none is written twice. A refusal ends an update of many. A server told to end
one (`Fault.PARTLY_DONE`) leaves it unfinished.

A meaning does the whole at once. This module adds no steps if a user's meaning answers or writes
differently document by document, or blocks without need. An exhaustive search reports that
(`uncovered`).

Laws, with any steps of others in between
    HW1  One request writes no document twice; a reinserted document is another one.
    HW2  The reply counts the documents written by its steps; a refused request has written none.
    HW3  Without other actors and refusals, every order gives the result of doing all at once.
    HW4  A refusal ends an update of many: it writes no further document.
    HW5  An upsert that found none inserts the document it would have inserted then, or is refused.

Known not to work
    - Of more than `APART_MAX` documents, all but the last are written in one step and one order;
      `uncovered` reports it. So is a statement of that many, where a unique index may refuse one.
    - A write misses documents that begin to match by age, or are reinserted during an update.
    - A half-done write is rolled back only if an earlier write is; a failover does not end it.
    - A stamped time is that of the document's own step; a server uses one for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias, cast

import attrs

from tidegate.model.documents import AllOf, Eq, OlderThan, equalities, parts_of
from tidegate.model.effects import Effect, Failure, NotApplied, Refused, is_too_late
from tidegate.model.errors import Misuse, shown
from tidegate.model.operations import BulkUpdate, DeleteMany, InsertOne, UpdateMany, UpsertOne
from tidegate.model.transactions import InTransaction
from tidegate.sim.program.relative_time import plain_text, same, unchanged
from tidegate.sim.servers.failover import noted, noted_in, noting, overwritten_in, unconfirmed
from tidegate.sim.world.cells import EARLIER
from tidegate.sim.world.packing import Lens
from tidegate.sim.world.transactions import all_confirmed, inside, known
from tidegate.sim.world.world import (
    MANY,
    UNCONFIRMED,
    Halfway,
    Key,
    Many,
    Meaning,
    Outcomes,
    Part,
    PartsDone,
    World,
    parts,
    target,
    to_insert,
    uniques,
)

APART_MAX: Final = 6
"""Other actors may act between this many documents, the last of a write."""
IN_STEPS: Final = (UpsertOne, *MANY)
Answers: TypeAlias = tuple[tuple[World, object], ...]
Steps: TypeAlias = Iterator[tuple[str, World, Halfway, bool]]
"""Description, next world, progress of the request, and whether the step must happen."""


def answers(meaning: Meaning, effect: Effect[object], world: World, who: str) -> Answers:
    """The outcomes of a request; empty while it must wait.

    Raises:
        Misuse: The meaning yields an invalid outcome.
    """
    outcomes: object = meaning(effect, world, who)
    found: tuple[object, ...] = tuple(outcomes) if isinstance(outcomes, Iterable) else (outcomes,)
    own = type(world)
    if not all(type(each) is tuple and len(each) == 2 and type(each[0]) is own for each in found):
        raise Misuse(
            f"a meaning has an outcome {shown(found[0] if len(found) == 1 else found)} for {effect}",
            where=who,
            why="an outcome is the world after it, which is made of the one that was given, and the reply",
            todo="yield (world, reply) or (world.write(cell, value), reply) for each outcome; for none, while it must wait, yield "
            "nothing",
        )
    return cast("Answers", found)


def stepping(  # noqa: PLR0917
    effect: Effect[object], world: World, who: str, meaning: Meaning, at: Halfway | None, whole: Answers
) -> Steps:
    """The steps of a request that do not complete it.

    Args:
        effect: The request.
        world: The current world.
        who: The process.
        meaning: Of its requests.
        at: Its progress; None before the first step.
        whole: Its outcomes if done at once.
    """
    if isinstance(effect, UpsertOne):
        insert = None if at is not None else _found_none(effect, world)
        if insert is not None and _is_inserted_later(effect, insert, world, who, meaning, whole):
            yield "it finds none, and has not inserted yet", world, Halfway((insert,)), False
    elif isinstance(effect, MANY):
        here = at
        if here is None:
            here = Halfway(parts(effect, world))
            if len(whole) > 1:  # includes the first one that ends it
                whole = answers(meaning, effect, world, who)
            if not is_done_apart(effect, here.left, world, who, meaning, whole):
                return
            if isinstance(effect, _BY_FILTER):
                yield "it has begun, and has written nothing", world, here.in_order(), False
        for happened, done, after in _onward(effect, here, world, who, meaning):
            if not after.is_over or (isinstance(effect, _BY_FILTER) and after.done.failure is None):
                yield f"{happened}, and goes on", done, after, at is not None and bool(after.left)
        if at is not None and isinstance(effect, _BY_FILTER):
            for part in _new(effect, at, world):
                for reply, done, after in _after(effect, at, part, world, who, meaning):
                    if after.done.failure is None:
                        yield f"{_said(part, reply)}, and goes on", done, after, False


def ended_early(effect: Effect[object], world: World, who: str, meaning: Meaning, whole: Answers) -> Answers:
    """Further outcomes of a write of many at once, in which other documents are refused than in
    natural order.
    """
    if isinstance(effect, InTransaction):
        return _ended_early_inside(effect, world, who, meaning, whole)
    if not isinstance(effect, MANY):
        return ()
    is_refused = bool(whole) and all(isinstance(reply, Failure) for _, reply in whole)
    ends = isinstance(effect, _BY_FILTER) or (isinstance(effect, BulkUpdate) and effect.within is not None)
    if not ends and not is_refused and not world.read(uniques(effect.collection)):
        return ()  # each has the same outcome in any order
    each = parts(effect, world)
    if not 1 < len(each) <= APART_MAX:
        return ()
    known = [(_packed(done), reply) for done, reply in whole]
    ended: list[tuple[World, object]] = []
    todo, met = [(world, Halfway(each))], set[object]()
    while todo:
        before, at = todo.pop()
        for part in at.left:
            for done, reply in answers(meaning, part, before, who):
                left = tuple(other for other in at.left if other is not part)
                after = Halfway(left, (), at.done.plus(effect, part, reply))
                reply_to_all, key = after.done.reply(effect), (frozenset(map(id, left)), _packed(done), after.done)
                is_other = is_refused or isinstance(reply_to_all, Failure)
                if (
                    after.is_over
                    and is_other
                    and not any(key[1] == one and same(reply_to_all, to) for one, to in known)
                ):
                    known.append((key[1], reply_to_all))
                    ended.append((done, reply_to_all))
                elif not after.is_over and key not in met:
                    met.add(key)
                    todo.append((done, after))
    return tuple(ended) if ended and is_done_apart(effect, each, world, who, meaning, whole) else ()


def _packed(world: World) -> object:
    inner = noted_in(world)
    return inner.state if isinstance(inner, Lens) else id(inner)


def _ended_early_inside(
    effect: InTransaction[object], world: World, who: str, meaning: Meaning, whole: Answers
) -> Answers:
    """As `ended_early`, of a statement. Whether it is refused, conflicts or succeeds may depend on
    the order.
    """
    operation = effect.operation
    if not isinstance(operation, (UpdateMany, DeleteMany, BulkUpdate)):
        return ()
    seen = inside(effect, world, who)
    each = () if seen is None else parts(operation, seen)
    if not 1 < len(each) <= APART_MAX or len(whole) != 1:
        return ()

    def besides(done: World) -> object:
        return _packed(done.write(known(effect.transaction.session), None))

    ended, todo, met = list(whole), [(world, Halfway(each))], set[object]()
    left_so = {besides(done) for done, reply in whole if not isinstance(reply, Failure)}
    while todo:
        before, at = todo.pop()
        for part in at.left:
            stated = attrs.evolve(effect, operation=part, begins=effect.begins and len(at.left) == len(each))
            for done, reply in answers(meaning, stated, before, who):
                left = tuple(other for other in at.left if other is not part)
                after = Halfway(left, (), at.done.plus(operation, part, reply))
                told, key = after.done.reply(operation), (frozenset(map(id, left)), besides(done))
                if isinstance(reply, NotApplied):
                    told = reply
                elif isinstance(told, Failure):
                    told = Refused(told.reason)
                is_over = not left or isinstance(reply, Failure)
                if isinstance(told, Failure):
                    is_other = all(type(told) is not type(reply) for _, reply in ended)
                else:
                    is_other = key[1] not in left_so
                if is_over and is_other:
                    left_so |= set() if isinstance(told, Failure) else {key[1]}
                    ended.append((done, told))
                elif not is_over and key not in met:
                    met.add(key)
                    todo.append((done, after))
    found = tuple(ended[1:])
    return found if found and _is_stated_apart(effect, each, world, who, meaning, whole[0]) else ()


def _is_stated_apart(  # noqa: PLR0917
    effect: InTransaction[object],
    each: tuple[Part, ...],
    world: World,
    who: str,
    meaning: Meaning,
    whole: tuple[World, object],
) -> bool:
    so_far = PartsDone()
    for nth, part in enumerate(each):
        found = answers(meaning, attrs.evolve(effect, operation=part, begins=effect.begins and not nth), world, who)
        if len(found) != 1:
            return False
        ((world, reply),) = found
        if isinstance(reply, Failure):
            return isinstance(whole[1], Failure) and _are_one(world, whole[0])
        so_far = so_far.plus(cast("Many", effect.operation), part, reply)
    return same(so_far.reply(cast("Many", effect.operation)), whole[1]) and _are_one(world, whole[0])


def ending(at: Halfway, effect: Effect[object], world: World, who: str, meaning: Meaning) -> Outcomes:
    """The outcomes of a request whose next step may complete it."""
    if isinstance(effect, UpsertOne):
        yield from _inserting(cast("InsertOne", at.left[0]), world, who, meaning)
        return
    many = cast("Many", effect)
    if not at.left:
        yield all_confirmed(world), at.done.reply(many)
    for _, done, after in _onward(many, at, world, who, meaning):
        if after.is_over:
            yield all_confirmed(done), after.done.reply(many)
    for part in _new(many, at, world) if isinstance(many, _BY_FILTER) else ():
        for _, done, after in _after(many, at, part, world, who, meaning):
            if after.done.failure is not None:
                yield all_confirmed(done), after.done.reply(many)


def too_many(effect: Many | InTransaction[object], world: World, who: str, meaning: Meaning, known: int = 0) -> int:
    """The number of documents in a write, if too many to try all orders; else `known`.

    The order of a statement matters only where a unique index can refuse.
    """
    if isinstance(effect, InTransaction):
        seen, operation = inside(effect, world, who), effect.operation
        if seen is None or not isinstance(operation, (UpdateMany, BulkUpdate)):
            return known
        number = len(parts(operation, seen)) if world.read(uniques(operation.collection)) else 0
        return number if number > max(APART_MAX, known) else known
    each = parts(effect, world)
    if len(each) <= max(APART_MAX, known):
        return known
    is_apart = is_done_apart(effect, each, world, who, meaning, answers(meaning, effect, world, who))
    return len(each) if is_apart else known


def is_at_once(effect: Effect[object], world: World, who: str, meaning: Meaning) -> bool:
    """Is it done at once because the meaning answers differently for single documents?"""
    whole = answers(meaning, effect, world, who)
    if isinstance(effect, UpsertOne):
        insert = _found_none(effect, world)
        return insert is not None and bool(whole) and not _is_inserted_later(effect, insert, world, who, meaning, whole)
    each = parts(effect, world) if isinstance(effect, MANY) else ()
    return bool(whole and len(each) > 1) and not is_done_apart(cast("Many", effect), each, world, who, meaning, whole)


_BY_FILTER: Final = (UpdateMany, DeleteMany)


def _onward(
    effect: Many, at: Halfway, world: World, who: str, meaning: Meaning
) -> Iterator[tuple[str, World, Halfway]]:
    """The progress after any one document; of too many, after all but the last ones."""
    if (first := len(at.left) - APART_MAX) > 0:
        come = [(world, at)]
        for part in at.left[:first]:
            come = [
                (done, after)
                for before, so_far in come
                for _, done, after in (
                    _after(effect, so_far, part, before, who, meaning)
                    if so_far.done.failure is None
                    else ((None, before, so_far),)
                )
            ]
        for done, after in come:
            yield f"{first} documents", done, after
        return
    for part in at.left:
        for reply, done, after in _after(effect, at, part, world, who, meaning):
            yield _said(part, reply), done, after


def _after(  # noqa: PLR0917
    effect: Many, at: Halfway, part: Part, world: World, who: str, meaning: Meaning
) -> Iterator[tuple[object, World, Halfway]]:
    """The outcomes of one part. A majority need not confirm it before the end."""
    left = tuple(each for each in at.left if each is not part)
    passed = at.passed if isinstance(effect, DeleteMany) else (*at.passed, cast("Key", target(part)))
    if not world.read(UNCONFIRMED):
        each = iter(answers(meaning, part, world, who))
    else:
        each = (
            (unconfirmed(world, done, overwritten, alone=True), reply)
            for done, reply, overwritten in noted(meaning, part, world, who)
        )
    for done, reply in each:
        yield reply, done, Halfway(left, passed, at.done.plus(effect, part, reply)).in_order()


def _said(part: Part, reply: object) -> str:
    return f"{plain_text(target(part))}: {plain_text(reply)}"


def _new(effect: UpdateMany | DeleteMany, at: Halfway, world: World) -> tuple[Part, ...]:
    if any(isinstance(each, OlderThan) for each in parts_of(effect.where)):
        return ()
    return parts(effect, world, frozenset((*at.passed, *map(target, at.left))))


def _found_none(effect: UpsertOne, world: World) -> InsertOne | None:
    """The document to insert if none is found; None for a filter of the id alone, which a server
    retries.
    """
    if len(equalities(effect.where)) == 1 and all(isinstance(each, (AllOf, Eq)) for each in parts_of(effect.where)):
        return None
    try:
        return to_insert(effect, world)
    except Refused:
        return None


def _inserting(insert: InsertOne, world: World, who: str, meaning: Meaning) -> Answers:
    return tuple((done, insert.doc if reply is None else reply) for done, reply in answers(meaning, insert, world, who))


# --- does a meaning act as the store does? --------------------------------------------------------


def _is_inserted_later(  # noqa: PLR0917
    effect: UpsertOne, insert: InsertOne, world: World, who: str, meaning: Meaning, whole: Answers
) -> bool:
    apart = _inserting(insert, world, who, meaning)
    if len(whole) != len(apart) or not all(same(one[1], other[1]) for one, other in zip(whole, apart, strict=True)):
        return False
    return all(_are_one(one[0], other[0]) for one, other in zip(whole, apart, strict=True)) or all(
        _is_alike(one[0], other[0])
        for one, other in zip(
            answers(meaning, effect, noting(world), who),
            _inserting(insert, noting(world), who, meaning),
            strict=True,
        )
    )


def is_done_apart(  # noqa: PLR0917
    effect: Many, each: tuple[Part, ...], world: World, who: str, meaning: Meaning, whole: Answers
) -> bool:
    done, so_far, taken = world, Halfway(each), 0
    for part in each:
        found = answers(meaning, part, done, who)
        if not found:
            return all(isinstance(reply, Failure) and is_too_late(reply) for _, reply in whole)
        if len(found) > 1:
            return False
        ((done, reply),) = found
        so_far, taken = Halfway((), (), so_far.done.plus(effect, part, reply)), taken + 1
        if so_far.done.failure is not None:
            break
    if any(isinstance(reply, Failure) and is_too_late(reply) for _, reply in whole):
        return True
    if len(whole) != 1 or not same(whole[0][1], so_far.done.reply(effect)):
        return False
    if _are_one(whole[0][0], done):
        return True
    apart = noting(world)
    for part in each[:taken]:
        ((apart, _),) = answers(meaning, part, apart, who)
    ((at_once, _),) = answers(meaning, effect, noting(world), who)
    return _is_alike(at_once, apart)


def _are_one(one: World, other: World) -> bool:
    return isinstance(one, Lens) and isinstance(other, Lens) and one.state == other.state


_KEPT_BY_WRITE: Final = frozenset({EARLIER.name, UNCONFIRMED.name})


def _is_alike(one: World, other: World) -> bool:
    return all(
        unchanged(one.read(cell), other.read(cell))
        for cell, _ in (*overwritten_in(one), *overwritten_in(other))
        if cell.name not in _KEPT_BY_WRITE
    )
