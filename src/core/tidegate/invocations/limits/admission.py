"""Decides whether a call may be registered, or an invocation may run: concurrency by reservation.

A task may declare that its invocations exclude each other: all (TASK), those with the same
arguments (ARGUMENTS), or those that agree in some (KEYS). Checking for others and then going on
races with every concurrent check. So each set of mutually exclusive invocations has one document,
named by what they have in common, that lists the holders of places. A decision maps the document
as read to its successor; the caller writes it by compare-and-set on the places that were read.
This is a semaphore with known holders (Dijkstra 1965), so a dead holder's place is recognized.

An invocation holds a place from the version at which it was admitted:

    at that version     It is admitted and about to be picked up. For registration it is about to
                        be created: version 0 is not a record yet.
    at a later version  It holds the place while its status counts. Running: pending, running,
                        paused. Registration: every status in which it waits to run (registered,
                        refused, to be retried, given back, recovered, killed).
    else                It does not hold the place. It ended, went back to the queue or was
                        recovered, and needs a new place.

A holder need not give a place back. Another invocation may take over a place that is no longer
held, once it has read the holder's record AFTER the document of places. For running, a counted
status is entered only from the version that the place names, and a version passes once. So a place
seen free stays free until the document changes. A crash between two writes leaves a place
whose state is known.

For registration, a running invocation may wait again: it fails and is retried, or its process
dies. While it runs another may be registered, and then both wait. The document keeps the place of
the running one, so the older one answers calls after the new one has ended.

A place names a version that was read, so the record is at least at that version. A caller with an
older record read it before another process picked the invocation up again. Admitting that caller
would displace the newer place, from which the other process is about to begin.

Laws
    AD1  At most `at_most` invocations of one set are pending, running or paused at any time.
    AD2  At most one invocation of one set is registered at any time.
    AD3  A request that knows the holders' records is refused only if enough of them hold a place.
    AD4  An admitted request that is repeated at the same version is answered so; no change.
    AD5  A refused invocation has a legal transition that needs no owner. It ends the invocation,
         or leads to where it may be picked up again.
    AD6  Two calls share a document of places exactly if they exclude each other by the rule.
    AD7  A release removes only the named place, at its version, and only if it is no longer held.
    AD8  A place is never replaced by an earlier version of its own invocation.
    AD9  While an invocation with a registration place waits to run, for any reason, no other is
         registered.

Known not to work
    - If more than KEPT_MAX run at once, the older places are forgotten. One of those that waits
      again answers no call.
    - A paused invocation that waits for another one of its own set waits for ever.
    - Changing a task's rule while it is in use changes the document: old and new calls do not
      exclude each other.
    - Reads of records and places must see all majority writes. A record older than its place
      proves no release, and is detected; a missing record counts as deleted.
    - Delete a record only AFTER its registration was released. A missing record counts as not yet
      created, and is created.
    - There is no queue: a place goes to the first request.
    - An admitted invocation whose message is lost keeps its place until recovery republishes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from hashlib import sha256
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.record.invocation import (
    CONCURRENCY_CONTROLLED,
    CONCURRENCY_CONTROLLED_FINAL,
    INVOCATION,
    PAUSED,
    PENDING,
    RUNNING,
)
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.errors import Misuse
from tidegate.model.values import check_int, check_name, check_type, check_types

# --- what excludes what -----------------------------------------------------------------------------------------------


class Purpose(Enum):
    """The purpose of a place."""

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
"""The limit of running holders' places kept beside a new one; enqueueing reads their records."""


class Control(Enum):
    """Which invocations of a task exclude each other."""

    DISABLED = "disabled"
    TASK = "task"
    ARGUMENTS = "arguments"
    KEYS = "keys"


@final
@attrs.frozen
class Rule:
    """The concurrency control of a task, for one purpose. Invariants: only KEYS has keys, each
    once.

    Attributes:
        control: Which invocations exclude each other.
        keys: With KEYS, the names of the arguments that must be equal.
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
    """A task and its arguments. Invariants: the task is not empty; names are distinct.

    Attributes:
        task: The name of the task.
        arguments: Name and serialized value of each, sorted by name; not shown.
    """

    task: str
    arguments: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_by_name, repr=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        if len({name for name, _ in self.arguments}) != len(self.arguments):
            raise Misuse("an argument is given twice", where=f"a call of {self.task!r}")


def reservation_id(purpose: Purpose, rule: Rule, call: Call) -> str | None:
    """The id of the document in which a call needs a place.

    Args:
        purpose: Registration or running.
        rule: The task's rule for that purpose.
        call: The call.

    Returns:
        The id, equal exactly for calls that exclude each other. It is a hash, so it reveals no
        arguments. None if no call excludes this one.

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
        digest.update(b"%d:%b" % (len(written), written))  # length-prefixed, so that no two lists give the same bytes
    return f"{purpose.value}-{digest.hexdigest()}"


def _in_common(rule: Rule, call: Call) -> Iterator[str]:
    for name, value in call.arguments:
        if rule.control is Control.ARGUMENTS or name in rule.keys:
            yield from (name, value)


def differing(call: Call, other: Call) -> tuple[str, ...]:
    """The sorted names of the arguments that two calls do not have in common.

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
    """A place and its holder. Invariants: the invocation is not empty; 0 <= version.

    Attributes:
        invocation: Its id.
        version: The version of its record when admitted; 0 if there was none.
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
    """The taken places, oldest first. Empty if no document. Invariant: one per invocation."""

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
        purpose: The purpose of the place.
        place: The place.
        record: The record, read AFTER the document of places by a read that sees all majority
            writes; None if there is none.

    Returns:
        False only if the place is free for good: no one holds it again until the document changes.

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
    """It has a place once the caller writes the document, if that is still as it was read.

    For running, it becomes pending only from the requested version. A move retried on a later
    record would enter without a place.
    """

    reservation: Reservation

    def __str__(self) -> str:
        return f"admitted: {self.reservation}"


@final
@attrs.frozen
class AlreadyAdmitted:
    """It was admitted before and has its place; there is no write."""

    def __str__(self) -> str:
        return "admitted already"


@final
@attrs.frozen
class Ask:
    """Read the records of these invocations, AFTER the document, and decide again."""

    invocations: tuple[str, ...]

    def __str__(self) -> str:
        return f"ask for {', '.join(map(repr, self.invocations))}"


@final
@attrs.frozen
class NoFreePlace:
    """These places are held for certain, and fill the set. The caller moves on to `target`."""

    by: tuple[Place, ...]
    target: str

    def __str__(self) -> str:
        return f"refused, and becomes {self.target!r}: {Reservation(self.by)}"


@final
@attrs.frozen
class NotAvailable:
    """It cannot be picked up as it is, or has changed, so it needs no place."""

    record: StatusRecord

    def __str__(self) -> str:
        return f"not available: {self.record}"


@final
@attrs.frozen
class Reuse:
    """Another invocation is registered for the same set and answers the call.

    Attributes:
        invocation: Its id.
        is_made: It has a record. If not, its creator is late or dead: create the record under this
            id, as registered. Creating it twice is harmless.
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
    """Another is registered with other arguments, which the rule forbids: an error."""

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
    """A reserved invocation as read: its call, and its record if it has one."""

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
    """Decide whether to register a new invocation for a call, or to answer it by another one.

    The caller stores the call under the id BEFORE admission and creates the record AFTER it.

    Args:
        reservation: The registration places, of `reservation_id`.
        invocation: The id made for the call.
        call: The call.
        known: The holders as read AFTER the reservation; empty if not read yet.
        must_agree: A call with other arguments is an error (`on_diff_non_key_args_raise`).

    Returns:
        `Admitted` with the document to write, `AlreadyAdmitted`, `Ask`, `Reuse` or `Differs`.

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
    """Decide whether an invocation may be picked up, BEFORE it becomes pending.

    Args:
        reservation: The running places, of `reservation_id`.
        invocation: Its id.
        record: Its record; an admitted one becomes pending from this version.
        known: The other holders' records, read AFTER the reservation, None for a missing one;
            empty if not read yet.
        at_most: How many of the set may run at once.
        reroute: A refused invocation returns to the queue; otherwise it ends.

    Returns:
        `Admitted` with the document to write, `AlreadyAdmitted`, `Ask`, `NoFreePlace` or
        `NotAvailable`.

    Raises:
        Misuse: An id is empty or no string, `at_most` is below 1, or a type is wrong.
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
    # A place counts as held until its holder's record has been read and shows otherwise.
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
    """The document to write, if it still is as it was read."""

    reservation: Reservation

    def __str__(self) -> str:
        return f"released: {self.reservation}"


@final
@attrs.frozen
class StillHeld:
    """The place stays: its holder may go on, perhaps in another process."""

    place: Place

    def __str__(self) -> str:
        return f"still held: {self.place}"


@final
@attrs.frozen
class NotThere:
    """There is no such place: it was released or taken over."""

    def __str__(self) -> str:
        return "not there"


def release(
    purpose: Purpose, reservation: Reservation, place: Place, record: StatusRecord | None
) -> Released | StillHeld | NotThere:
    """Give a place back, so that others need not read its holder's record.

    Args:
        purpose: The purpose of the places.
        reservation: The places.
        place: The place as it was taken. A late release removes no later place of the invocation.
        record: The holder's record, read AFTER the reservation. A held place cannot be released,
            because two processes that picked the invocation up share it.

    Returns:
        `Released` with the document to write (if empty, it may be deleted while it is empty),
        `StillHeld` or `NotThere`.

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
