"""May this call be registered, or run, now? Concurrency control as a reservation of a place, and not as a look around.

A task may say that its invocations exclude each other: all of them (TASK), those with the same arguments (ARGUMENTS), or
those that agree in some (KEYS). Whoever looks whether another one is there, and goes on if not, races with everybody who
looks at the same time. So there is one document for each set of invocations that exclude each other, named by what they
have in common, which lists who holds a place. A decision takes it as it was read and answers what it becomes; it is
carried out by one compare-and-set on the places that it was decided on. It is a semaphore whose holders are known
(Dijkstra 1965), so that the place of a holder that is gone can be distinguished from that of one that works.

A place is held by an invocation at the version at which it was admitted. It is held

    at that version           admitted, and about to be picked up (or, for registration, made: version 0 is not a record yet)
    at a later version        while its status is one that counts: for running pending, running, paused; for registration all
                              in which it waits to run: registered, refused, to be tried again, given back, recovered, killed
    else                      no more: it ended, went back to the queue, or was recovered, and needs a new place

Nobody needs to give a place back: one that is no longer held is taken over by whoever looks at the record of its holder,
AFTER the document of places was read. For running, a status that counts is entered only from the version that the place
names, and that version passes once; so a place that was seen to be free stays free until the document changes. A crash
between any two of these writes leaves a place whose state is known.

For registration one that runs may wait again: it fails and is to be tried again, or its process dies. While it runs another
one may be registered, and then both wait. The place of whoever runs stays in the document beside that of the new one, so
that a call is answered by the older one when the new one has ended, and it waits.

A place names a version that was read, so the record has come at least as far. Who asks for the same invocation with an older
record has read it before another one took it up again. It has no way in from there; if it were admitted, its place would
displace the newer one, from which the other is about to begin.

Laws
    AD1  At most `at_most` invocations of one set are pending, running or paused at any time.
    AD2  At most one invocation of one set is registered at any time.
    AD3  Who asks for a place and knows the records of those who hold one is refused only if enough of them do hold it.
    AD4  Who was admitted and asks again, at the same version, gets that answer, and nothing changes.
    AD5  Who is refused has a legal way on, open to anybody; it leads back to where it may be picked up again, or ends it.
    AD6  Two calls have one document of places exactly if they exclude each other by the rule.
    AD7  A release takes away the place that it names, at its version, and only one that is no longer held.
    AD8  A place gives way to none of an earlier version of its own invocation.
    AD9  While one of those who have a place for registration waits to run, whatever for, no other one is registered.

Known not to work
    - Of more than KEPT_MAX that run at once the older ones are forgotten: one of those that waits again answers no call.
    - A paused invocation that waits for another of its own set waits for ever.
    - Who changes the rule of a task while it is in use changes the document too: the old ones and the new do not meet.
    - Records and places are read by reads that see all majority writes. A record that is older than the place proves
      nothing, and is noticed; one that is missing is taken for deleted.
    - Records are deleted AFTER their registration was released: one that is missing is thought to be made yet, and made.
    - Nobody waits in line: a place goes to whoever asks first.
    - An admitted invocation whose message is lost keeps its place until recovery publishes the message again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from hashlib import sha256
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.invocation import (
    CONCURRENCY_CONTROLLED,
    CONCURRENCY_CONTROLLED_FINAL,
    INVOCATION,
    PAUSED,
    PENDING,
    RUNNING,
)
from tidegate.invocations.status import StatusRecord
from tidegate.model.errors import Misuse
from tidegate.model.values import check_int, check_name, check_type, check_types

# --- what excludes what -----------------------------------------------------------------------------------------------


class Purpose(Enum):
    """What a place is for."""

    REGISTRATION = "registration"
    RUNNING = "running"


COUNTS: Final[Mapping[Purpose, frozenset[str]]] = {
    Purpose.REGISTRATION: frozenset(
        each.status for each in INVOCATION.definitions if not (each.final or each.requires_owner)
    ),
    Purpose.RUNNING: frozenset({PENDING, RUNNING, PAUSED}),
}
"""The statuses in which an invocation holds its place."""


KEPT_MAX: Final = 16
"""So many places of those that run stay beside that of a new one: whoever enqueues reads their records."""


class Control(Enum):
    """Which invocations of a task exclude each other."""

    DISABLED = "disabled"
    TASK = "task"
    ARGUMENTS = "arguments"
    KEYS = "keys"


@final
@attrs.frozen
class Rule:
    """The concurrency control of a task, for one purpose.

    Invariants: there are keys exactly with KEYS, each once.

    Attributes:
        control: Which invocations exclude each other.
        keys: With KEYS, the names of the arguments in which they agree.
    """

    control: Control = Control.DISABLED
    keys: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_type(self.control, Control, "a control")
        check_type(self.keys, tuple, "a tuple of names")
        for key in self.keys:
            check_name(key, "an argument")
        if (self.control is Control.KEYS) is not bool(self.keys):
            raise Misuse(
                f"{self.control.value!r} does not go with the keys {self.keys}",
                why="keys are named for KEYS, and for nothing else",
                todo="without keys, all invocations of a task are TASK",
            )
        if len(set(self.keys)) != len(self.keys):
            raise Misuse(f"a key is named twice: {self.keys}")


def _by_name(arguments: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The arguments in the order of their names; Misuse where they are not pairs."""
    check_types(arguments, tuple, "a name and a value")
    for argument in arguments:
        parts: tuple[object, ...] = argument
        check_types(parts, str, "a string")
        if len(parts) != 2:
            raise Misuse("an argument is not a pair", why="it is a name and a serialized value")
    return tuple(sorted(arguments))


@final
@attrs.frozen
class Call:
    """A task, and what it is called with. Invariants: the task is not empty; names are distinct.

    Attributes:
        task: The name of the task.
        arguments: Name and serialized value of each, in the order of the names; not shown.
    """

    task: str
    arguments: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_by_name, repr=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        if len({name for name, _ in self.arguments}) != len(self.arguments):
            raise Misuse("an argument is given twice", where=f"a call of {self.task!r}")


def reservation_id(purpose: Purpose, rule: Rule, call: Call) -> str | None:
    """The id of the document of places that a call needs one in.

    Args:
        purpose: Whether it is to be registered or to run.
        rule: The rule of its task for that purpose.
        call: The call.

    Returns:
        The id, the same for all calls that exclude each other and for no others, and without their arguments in clear;
        None if nothing excludes it.

    Raises:
        Misuse: An argument is of the wrong type.
    """
    check_type(purpose, Purpose, "a purpose")
    check_type(rule, Rule, "a rule")
    check_type(call, Call, "a call")
    if rule.control is Control.DISABLED:
        return None
    digest = sha256()
    for part in (rule.control.value, call.task, *_in_common(rule, call)):
        written = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(written), written))  # its length before it, so that no two lists look the same
    return f"{purpose.value}-{digest.hexdigest()}"


def _in_common(rule: Rule, call: Call) -> Iterator[str]:
    """The arguments in which calls agree that exclude each other."""
    for name, value in call.arguments:
        if rule.control is Control.ARGUMENTS or name in rule.keys:
            yield from (name, value)


def differing(call: Call, other: Call) -> tuple[str, ...]:
    """The names of the arguments that two calls do not have in common, in order.

    Raises:
        Misuse: An argument is of the wrong type.
    """
    for each in (call, other):
        check_type(each, Call, "a call")
    return tuple(sorted({name for name, _ in {*call.arguments} ^ {*other.arguments}}))


# --- places -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Place:
    """Who was admitted. Invariants: the invocation is not empty; 0 <= version.

    Attributes:
        invocation: Its id.
        version: The version of its record when it was admitted; 0 where there was none.
    """

    invocation: str
    version: int

    def __attrs_post_init__(self) -> None:
        check_name(self.invocation, "an invocation")
        check_int(self.version, "the version of a record", 0)

    def __str__(self) -> str:
        return f"{self.invocation!r} at version {self.version}"


@final
@attrs.frozen
class Reservation:
    """The places that are taken, oldest first; none where there is no document. Invariant: an invocation has one."""

    places: tuple[Place, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_type(self.places, tuple, "a tuple of places")
        check_types(self.places, Place, "a place")
        if len({place.invocation for place in self.places}) != len(self.places):
            raise Misuse("an invocation has two places", where=str(self))

    def __str__(self) -> str:
        return ", ".join(map(str, self.places)) or "nobody"


def is_held(purpose: Purpose, place: Place, record: StatusRecord | None) -> bool:
    """Whether a place is held, by the record of its holder.

    Args:
        purpose: What it is for.
        place: The place.
        record: The record as it was read AFTER the document of places, by a read that sees all majority writes; None if
            there is none.

    Returns:
        False only if it is no longer held, which is for good: until the document changes nobody holds it again.

    Raises:
        Misuse: An argument is of the wrong type.
    """
    check_type(purpose, Purpose, "a purpose")
    check_type(place, Place, "a place")
    check_type(record, (StatusRecord, NoneType), "a record")
    return _is_held(purpose, place, record)


def _is_held(purpose: Purpose, place: Place, record: StatusRecord | None) -> bool:
    if record is None:
        return place.version == 0
    return record.version <= place.version or record.status in COUNTS[purpose]


def _may_wait_again(record: StatusRecord | None) -> bool:
    return record is not None and not INVOCATION[record.status].final


# --- verdicts ---------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Admitted:
    """It has a place, once the document is written, if it still is as it was read.

    For running: it becomes pending from the version that was asked for, and from no other. A move that is tried again on
    whatever the record is by then would enter without a place.
    """

    reservation: Reservation

    def __str__(self) -> str:
        return f"admitted: {self.reservation}"


@final
@attrs.frozen
class AlreadyAdmitted:
    """It has a place, and nothing need be written: it was admitted before."""

    def __str__(self) -> str:
        return "admitted already"


@final
@attrs.frozen
class Ask:
    """Whether they still hold their places decides: read their records, AFTER the document, and decide again."""

    invocations: tuple[str, ...]

    def __str__(self) -> str:
        return f"ask for {', '.join(map(repr, self.invocations))}"


@final
@attrs.frozen
class NoFreePlace:
    """Others hold all places: these do, for certain. The way on of the one that asked is `target`."""

    by: tuple[Place, ...]
    target: str

    def __str__(self) -> str:
        return f"refused, and becomes {self.target!r}: {Reservation(self.by)}"


@final
@attrs.frozen
class NotAvailable:
    """It may not be picked up as it is, or is no more what it was, so it needs no place."""

    record: StatusRecord

    def __str__(self) -> str:
        return f"not available: {self.record}"


@final
@attrs.frozen
class Reuse:
    """Another one is registered for the same; the call is answered by that.

    Attributes:
        invocation: Its id.
        is_made: It has a record. If not, whoever reserved for it has not come to make one, or never will: make it, as
            registered and under this id, which is harmless if it is made twice.
        differing: The names of the arguments in which the two calls differ.
    """

    invocation: str
    is_made: bool
    differing: tuple[str, ...]

    def __str__(self) -> str:
        made = "" if self.is_made else ", which is to be made"
        return f"reuse {self.invocation!r}{made}{_differing(self.differing)}"


@final
@attrs.frozen
class Differs:
    """Another one is registered for the same, with other arguments, and the rule does not bear that: an error."""

    invocation: str
    differing: tuple[str, ...]

    def __str__(self) -> str:
        return f"refused: {self.invocation!r} is registered{_differing(self.differing)}"


RegistrationVerdict: TypeAlias = Admitted | AlreadyAdmitted | Ask | Reuse | Differs
RunningVerdict: TypeAlias = Admitted | AlreadyAdmitted | Ask | NoFreePlace | NotAvailable


# --- the decisions ----------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Found:
    """What is known of an invocation that was reserved for: its call, and its record, if it has one."""

    call: Call
    record: StatusRecord | None

    def __attrs_post_init__(self) -> None:
        check_type(self.call, Call, "a call")
        check_type(self.record, (StatusRecord, NoneType), "a record")


def decide_registration(
    reservation: Reservation,
    invocation: str,
    call: Call,
    known: Mapping[str, Found],
    *,
    must_agree: bool = False,
) -> RegistrationVerdict:
    """Whether a new invocation is registered for a call, or another one answers it.

    The call is stored under the invocation's id BEFORE, and its record is made AFTER it was admitted.

    Args:
        reservation: The places for registration, of `reservation_id`.
        invocation: The id made for the call.
        call: The call.
        known: Of those who have a place, what was read AFTER the reservation; none if it has not been looked for.
        must_agree: Whether a call with other arguments is an error (`on_diff_non_key_args_raise`).

    Returns:
        `Admitted` with the document to be written, `AlreadyAdmitted`, `Ask`, `Reuse` or `Differs`.

    Raises:
        Misuse: An id is empty or no string, or an argument is of the wrong type.
    """
    check_type(reservation, Reservation, "a reservation")
    check_name(invocation, "an invocation")
    check_type(call, Call, "a call")
    check_type(known, Mapping, "what is known of invocations")
    check_types(known.values(), Found, "what is known of an invocation")
    check_type(must_agree, bool, "whether calls must agree")
    if any(place.invocation == invocation for place in reservation.places):
        return AlreadyAdmitted()
    if unknown := tuple(place.invocation for place in reservation.places if place.invocation not in known):
        return Ask(unknown)
    for place in reservation.places:
        found = known[place.invocation]
        if _is_held(Purpose.REGISTRATION, place, found.record):
            others = differing(call, found.call)
            if others and must_agree:
                return Differs(place.invocation, others)
            return Reuse(place.invocation, found.record is not None, others)
    running = tuple(each for each in reservation.places if _may_wait_again(known[each.invocation].record))
    return Admitted(Reservation((*running[-KEPT_MAX:], Place(invocation, 0))))


def decide_running(
    reservation: Reservation,
    invocation: str,
    record: StatusRecord,
    known: Mapping[str, StatusRecord | None],
    *,
    at_most: int = 1,
    reroute: bool = False,
) -> RunningVerdict:
    """Whether an invocation may be picked up, BEFORE it becomes pending.

    Args:
        reservation: The places for running, of `reservation_id`.
        invocation: Its id.
        record: Its record; if it is admitted, it becomes pending from this version.
        known: The records of others who have a place, read AFTER the reservation, None for one that is missing; none if
            they have not been looked for.
        at_most: How many of the set may run at once.
        reroute: What becomes of it if it is refused: it goes back to the queue, or it ends.

    Returns:
        `Admitted` with the document to be written, `AlreadyAdmitted`, `Ask`, `NoFreePlace` or `NotAvailable`.

    Raises:
        Misuse: An id is empty or no string, there is no place at all, or an argument is of the wrong type.
    """
    check_type(reservation, Reservation, "a reservation")
    check_name(invocation, "an invocation")
    check_type(record, StatusRecord, "a record")
    check_type(known, Mapping, "what is known of invocations")
    check_types(known.values(), (StatusRecord, NoneType), "a record")
    check_int(at_most, "a number of places", 1)
    check_type(reroute, bool, "whether it is rerouted")
    if PENDING not in INVOCATION.following(record.status):
        return NotAvailable(record)
    mine = Place(invocation, record.version)
    if mine in reservation.places:
        return AlreadyAdmitted()
    if any(place.invocation == invocation and place.version > record.version for place in reservation.places):
        return NotAvailable(record)  # it was admitted later: the record is an old one
    # A place whose holder has not been looked for may be held: it counts until its record says otherwise.
    held = tuple(
        place
        for place in reservation.places
        if place.invocation != invocation  # its own place is of an earlier turn
        and (place.invocation not in known or _is_held(Purpose.RUNNING, place, known[place.invocation]))
    )
    if len(held) < at_most:
        return Admitted(Reservation((*held, mine)))
    by = tuple(place for place in held if place.invocation in known)
    if len(by) >= at_most:
        return NoFreePlace(by, CONCURRENCY_CONTROLLED if reroute else CONCURRENCY_CONTROLLED_FINAL)
    return Ask(tuple(place.invocation for place in held if place not in by))


@final
@attrs.frozen
class Released:
    """What the document becomes, if it still is as it was read."""

    reservation: Reservation

    def __str__(self) -> str:
        return f"released: {self.reservation}"


@final
@attrs.frozen
class StillHeld:
    """The place stays: its holder may go on, perhaps by somebody else's hand."""

    place: Place

    def __str__(self) -> str:
        return f"still held: {self.place}"


@final
@attrs.frozen
class NotThere:
    """There is no such place: it was released, or taken over."""

    def __str__(self) -> str:
        return "not there"


def release(
    purpose: Purpose, reservation: Reservation, place: Place, record: StatusRecord | None
) -> Released | StillHeld | NotThere:
    """What becomes of the places when one is given back, so that others need not find out for themselves.

    Args:
        purpose: What they are for.
        reservation: The places.
        place: The one that is given back, as it was taken: a late release takes no later place of the same invocation.
        record: The record of its holder, read AFTER the reservation. Who was admitted may not give the place back as
            long as it is held: two that picked the invocation up have it together.

    Returns:
        `Released` with the document to be written; without places it may be deleted, as long as it is without them. Or
        `StillHeld`, or `NotThere`.

    Raises:
        Misuse: An argument is of the wrong type.
    """
    check_type(reservation, Reservation, "a reservation")
    held = is_held(purpose, place, record)
    if place not in reservation.places:
        return NotThere()
    if held:
        return StillHeld(place)
    return Released(Reservation(tuple(each for each in reservation.places if each != place)))


def _differing(names: tuple[str, ...]) -> str:
    return f", with other arguments: {', '.join(names)}" if names else ""
