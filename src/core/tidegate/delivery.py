"""What follows a failed delivery, and when is an offset done? Deliver again, skip, dead-letter, or hold back.

What user code makes of a record are payloads, each for a sink. A sink fails for one payload, because of what is in it, or
for all, because it is away. So there are two machines: the life of a payload, and a circuit breaker a sink.

    Sending -- acknowledged --> Delivered                         not_before: wait until then, and send it (again)
       | ^-- failed: again, later
       |---- failed: skip ----> Skipped
       |---- failed: hold ----> Held -- released --> Sending or Burying      dismissed --> Skipped
       v                          ^
    Burying -- unwritten: again, or held back
       '------- written ------> Buried                            an acknowledgement that comes late: Delivered

Each failure is asked about: what user code answers, else the rules; when to try again is a policy of `tidegate.retry`.
What was refused (`Refused`) is not sent again. Delivery is at least once: what may have arrived is sent again, and a
sink that must not have it twice recognises it, by topic, partition, offset, sink and index.

The state says what to do: there are no wishes beside it. Things may be heard late, twice and in any order: an attempt
has a number, and what is heard of an older one changes nothing, unless it is that the payload has arrived.

The breaker (Nygard 2007, "Release It!", ch. 5) keeps a sink that is away from being asked by everybody, and payloads from
using up their attempts meanwhile. It is asked before EACH attempt:

    Closed -- `threshold` attempts in a row unanswered --> Open -- cooldown over, and somebody asks --> HalfOpen
       ^                                                    ^------- the one probe is not answered -------- |
       '------------------------------ the one probe is answered ------------------------------------------'

A refusal is an answer: the sink is there. Each admission bears the era of the circuit, and each trip, probe and closing
begins a new one, so what is heard of deliveries that were begun before is not taken for news.

A dead letter is the record and one payload, whole, with what went wrong: JSON in ASCII, so that it can be read and
searched, with a digest, so that it is not taken for what it is not. Bytes that are UTF-8 stand there as text, others in
base64; the payload is whatever the sink's adapter needs to send it again.

Laws
    DL1  An offset completes only when user code is done with it and each of its payloads was acknowledged, skipped by a
         decision, or dead-lettered with a confirmation.
    DL2  What is settled stays settled; an offset that is complete stays complete.
    DL3  A payload is sent again only as the policy allows it, not before its time, and not after a refusal; whoever
         releases it allows one attempt more.
    DL4  What cannot be dead-lettered is held back; it is never skipped by itself.
    DL5  What is heard of an attempt that is over changes nothing, but for its success.
    DL6  Without outside help a payload comes to rest: it is settled or held after as many failures as the policies allow.
    DL7  A circuit opens when `threshold` attempts of one era in a row are unanswered, and not before.
    DL8  While it is not closed, one probe at most is under way in a cooldown, and nothing else is admitted.
    DL9  No circuit stays shut: whatever it was told, something is admitted within a cooldown, whatever the clock does.
    DL10 What is heard of deliveries from before, or of a probe that was replaced, changes nothing.
    DL11 Decoding an encoded dead letter gives the same dead letter, for every payload and every key.
    DL12 Whatever bytes are decoded, the answer is a dead letter or the flaw that they have; what was changed is noticed.
    DL13 No text or representation of a dead letter shows what the record or the payload carries.

Where we differ from Drakkar, and in the last point from a rule for dead letters' ids
    - It dead-letters the shell of a payload without its body, topic, offset and key, and drops a payload whose attempts
      are used up, or whose dead letter cannot be written; in each case the offset is committed.
    - An open breaker diverts all payloads to the dead letters, so an outage of half a minute empties the topic into them.
      Here they are held back. Its breaker is asked once for all attempts, and counts payloads that failed; ours counts
      attempts that got no answer. Its half-open probe may be decided by a delivery from before the trip, and waits for
      ever for one that does not come back.
    - It sends a whole batch again when one payload of it failed. Here each payload has a life of its own.
    - Attempts follow each other without a delay. Here there is a back-off.
    - A hook that raises lets the payload escape. Here whoever calls it answers RETRY for it, as where there is no hook.
    - The rule names a dead letter by topic, partition, offset and attempt; the same payload would have another id each
      time that its record is delivered again. Ours has the sink, the index and a digest, for user code may make another
      payload then.

Known not to work
    - A payload may be delivered and dead-lettered, where the acknowledgement of an attempt comes after it was given up.
    - A dead letter that the broker takes for too large is refused, so its payload is held back until somebody dismisses
      it or raises the limit.
    - Errors are shown: whoever reports them leaves out what is secret. Passwords in addresses are masked here as well.
    - A dead letter that is delivered again and fails again is dead-lettered again, as a record of its own topic.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from enum import Enum
from hashlib import sha256
from types import NoneType
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.documents import INT64, has_lone_surrogate
from tidegate.effects import Failure, Refused
from tidegate.errors import Misuse, named, numbered
from tidegate.instants import MILLISECOND, SECOND, ClockName, Duration, Instant
from tidegate.kinds import of_kind
from tidegate.records import Record
from tidegate.retry import Exponential, Policy, Retry, check_delay, check_ppm
from tidegate.retry import decide as decide_retry

ERROR_MAX: Final = 4_096
"""How much of an error's text is kept, in characters."""

WORD: Final = re.compile(r"\S+")


def shown(error: str) -> str:
    """The text of an error as it is kept: without credentials in addresses, with a UTF-8 form, and not too long.

    Raises:
        Misuse: It is empty or no string.
    """
    of_kind(error, str, "the text of an error")
    if not error:
        raise Misuse("an error has no text", todo="say at least what kind it is of")
    whole = error.encode("utf-8", "backslashreplace").decode("utf-8")
    return WORD.sub(_masked, whole)[:ERROR_MAX]


def _masked(word: re.Match[str]) -> str:
    """A word, without the credentials that it has if it is an address: what stands before its last @."""
    scheme, colon, rest = word[0].partition("://")
    _, at, host = rest.rpartition("@")
    return f"{scheme}://***@{host}" if colon and at else word[0]


# --- rules ------------------------------------------------------------------------------------------------------------


class Action(Enum):
    """What follows a failure."""

    RETRY = "deliver it again, as the policy allows"
    SKIP = "skip it"
    DEAD_LETTER = "dead-letter it"
    HOLD = "hold it back"


BACK_OFF: Final = Exponential(100 * MILLISECOND, 10 * SECOND)
SENDING: Final = Policy(schedule=BACK_OFF, attempts_max=3)
BURYING: Final = Policy(schedule=BACK_OFF, attempts_max=5)


@final
@attrs.frozen(kw_only=True)
class Rules:
    """What follows a failed delivery.

    Invariants: `refused` and `lasting` are not RETRY, and not DEAD_LETTER where there are no dead letters.

    Attributes:
        sending: When to send a payload again, and how often.
        refused: What follows when the sink refuses a payload, for then sending it again is of no use.
        lasting: What follows when the policy gives up.
        burying: When to write a dead letter again, and how often, before the payload is held back; None where there are
            no dead letters.
    """

    sending: Policy = SENDING
    refused: Action = Action.DEAD_LETTER
    lasting: Action = Action.DEAD_LETTER
    burying: Policy | None = BURYING

    def __attrs_post_init__(self) -> None:
        of_kind(self.sending, Policy, "a policy")
        of_kind(self.burying, (Policy, NoneType), "a policy or None")
        for action, when in ((self.refused, "a refusal"), (self.lasting, "the last attempt")):
            of_kind(action, Action, "an action")
            if action is Action.RETRY:
                raise Misuse(f"nothing is decided for {when}", why="it is not sent again", todo="skip, bury or hold it")
            if action is Action.DEAD_LETTER and self.burying is None:
                raise Misuse(
                    f"dead letters after {when}, and no policy for them", todo="set `burying`, or hold it back"
                )


# --- the life of a payload --------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Failures:
    """Attempts that failed. Invariant: 1 <= count.

    Attributes:
        count: How many did, one after the other.
        first: When the first did.
        last: When the last did.
        error: What it said.
    """

    count: int
    first: Instant
    last: Instant
    error: str = attrs.field(converter=shown)

    def __attrs_post_init__(self) -> None:
        numbered(self.count, "a number of failures", 1)
        of_kind(self.first, Instant, "the time of a failure")
        of_kind(self.last, Instant, "the time of a failure")


@final
@attrs.frozen
class Sending:
    """It is to be sent, or under way; not before that time, if there is one."""

    failures: Failures | None = None
    not_before: Instant | None = None

    def __attrs_post_init__(self) -> None:
        of_kind(self.failures, (Failures, NoneType), "what failed, or None")
        of_kind(self.not_before, (Instant, NoneType), "a time or None")

    @property
    def attempt(self) -> int:
        """The number of the attempt to send it that is to be made, or under way."""
        return _number(self.failures)


@final
@attrs.frozen
class Burying:
    """Its dead letter is to be written, or under way; not before that time, if there is one.

    Attributes:
        failures: Why it is dead-lettered: the attempts to deliver it.
        unwritten: The attempts to write the dead letter that failed.
        not_before: When to write it.
    """

    failures: Failures
    unwritten: Failures | None = None
    not_before: Instant | None = None

    def __attrs_post_init__(self) -> None:
        of_kind(self.failures, Failures, "what failed")
        of_kind(self.unwritten, (Failures, NoneType), "what failed, or None")
        of_kind(self.not_before, (Instant, NoneType), "a time or None")

    @property
    def attempt(self) -> int:
        """The number of the attempt to write the dead letter that is to be made, or under way."""
        return _number(self.unwritten)


class Why(Enum):
    """Why it is held back, or skipped."""

    ANSWERED = "user code said so"
    REFUSED = "the sink refuses it, and the rules say so"
    LASTING = "its attempts are used up, and the rules say so"
    NO_DEAD_LETTERS = "there are no dead letters"
    UNWRITTEN = "its dead letter could not be written"
    DISMISSED = "somebody dismissed it"


@final
@attrs.frozen
class Held:
    """It stands, and its offset with it, until it is released, to go on with `then`, or dismissed."""

    why: Why
    then: Sending | Burying

    def __attrs_post_init__(self) -> None:
        of_kind(self.why, Why, "why it is held back")
        of_kind(self.then, (Sending, Burying), "what it goes on with")


@final
@attrs.frozen
class Delivered:
    """The sink acknowledged it."""


@final
@attrs.frozen
class Skipped:
    """It was decided not to deliver it."""

    why: Why

    def __attrs_post_init__(self) -> None:
        of_kind(self.why, Why, "why it is skipped")


@final
@attrs.frozen
class Buried:
    """Its dead letter was written, and a majority has it."""


Payload: TypeAlias = Sending | Burying | Held | Delivered | Skipped | Buried
PAYLOADS: Final = (Sending, Burying, Held, Delivered, Skipped, Buried)
SETTLED: Final = (Delivered, Skipped, Buried)


@final
@attrs.frozen
class Acknowledged:
    """The sink has it, durably."""


@final
@attrs.frozen
class Failed:
    """An attempt to deliver it failed. Invariants: 1 <= attempt; 0 <= draw_ppm <= PPM.

    Attributes:
        attempt: Its number.
        failure: How it failed.
        answer: What user code says to that; RETRY where it says nothing, raises, or is not asked.
        now: The time.
        draw_ppm: A random number for the jitter of the policy.
    """

    attempt: int
    failure: Failure
    answer: Action
    now: Instant
    draw_ppm: int = 0

    def __attrs_post_init__(self) -> None:
        _check_attempt(self.attempt, self.failure, self.now, self.draw_ppm)
        of_kind(self.answer, Action, "an action")


@final
@attrs.frozen
class Written:
    """The dead letter was written, and the broker has confirmed it durably."""


@final
@attrs.frozen
class Unwritten:
    """An attempt to write the dead letter failed, or was not confirmed. Invariants and attributes: as for `Failed`."""

    attempt: int
    failure: Failure
    now: Instant
    draw_ppm: int = 0

    def __attrs_post_init__(self) -> None:
        _check_attempt(self.attempt, self.failure, self.now, self.draw_ppm)


@final
@attrs.frozen
class Released:
    """Whoever holds it back lets it go on: the sink is there again, or somebody has looked at it."""


@final
@attrs.frozen
class Dismissed:
    """Whoever holds it back has decided to do without it."""


Event: TypeAlias = Acknowledged | Failed | Written | Unwritten | Released | Dismissed
EVENTS: Final = (Acknowledged, Failed, Written, Unwritten, Released, Dismissed)


def step(rules: Rules, payload: Payload, event: Event) -> Payload:
    """What becomes of a payload.

    Args:
        rules: What follows a failed delivery.
        payload: Where it stands.
        event: What was heard.

    Returns:
        Where it stands then; the same where the event says nothing new. `Sending` and `Burying` are to be carried out.

    Raises:
        Misuse: An argument is of another type, or the time is of another clock than that of its first failure.
    """
    of_kind(rules, Rules, "rules")
    of_kind(payload, PAYLOADS, "a payload")
    of_kind(event, EVENTS, "an event")
    match payload:
        case Sending():
            return _sending(rules, payload, event)
        case Burying():
            return _burying(rules, payload, event)
        case Held():
            return _held(payload, event)
        case Delivered() | Skipped() | Buried():
            return payload  # settled for good (DL2)
        case _:
            assert_never(payload)


def _sending(rules: Rules, payload: Sending, event: Event) -> Payload:
    match event:
        case Acknowledged():
            return Delivered()
        case Failed(attempt) if attempt == payload.attempt:
            return _after_failure(rules, payload, event)
        case Failed():
            return payload  # an attempt that was heard of already (DL5)
        case Written() | Unwritten():
            return payload  # no dead letter was asked for
        case Released() | Dismissed():
            return payload  # it is not held
        case _:
            assert_never(event)


def _burying(rules: Rules, payload: Burying, event: Event) -> Payload:
    match event:
        case Acknowledged():
            return Delivered()  # late, after it was given up
        case Written():
            return Buried()
        case Unwritten(attempt) if attempt == payload.attempt:
            return _after_unwritten(rules, payload, event)
        case Unwritten():
            return payload  # an attempt that was heard of already (DL5)
        case Failed():
            return payload  # it was given up already
        case Released() | Dismissed():
            return payload  # it is not held
        case _:
            assert_never(event)


def _held(payload: Held, event: Event) -> Payload:
    match event:
        case Acknowledged():
            return Delivered()
        case Written():
            return Buried() if isinstance(payload.then, Burying) else payload  # late, after it was given up
        case Failed() | Unwritten():
            return payload  # nothing is under way
        case Released():
            return payload.then
        case Dismissed():
            return Skipped(Why.DISMISSED)
        case _:
            assert_never(event)


def _after_failure(rules: Rules, payload: Sending, event: Failed) -> Payload:
    """What follows the failure of the attempt that is under way."""
    failures = _one_more(payload.failures, event.failure, event.now)
    if event.answer is not Action.RETRY:
        return _ended(rules, failures, event.answer, Why.ANSWERED)
    if isinstance(event.failure, Refused):
        return _ended(rules, failures, rules.refused, Why.REFUSED)
    verdict = decide_retry(rules.sending, failures.count, failures.first, event.now, event.draw_ppm)
    if isinstance(verdict, Retry):
        return Sending(failures, verdict.at)
    return _ended(rules, failures, rules.lasting, Why.LASTING)


def _ended(rules: Rules, failures: Failures, action: Action, why: Why) -> Payload:
    """What follows when it is not sent again."""
    if action is Action.SKIP:
        return Skipped(why)
    if action is Action.HOLD:
        return Held(why, Sending(failures))
    return Burying(failures) if rules.burying is not None else Held(Why.NO_DEAD_LETTERS, Sending(failures))


def _after_unwritten(rules: Rules, payload: Burying, event: Unwritten) -> Payload:
    """What follows when the dead letter was not written: again, or held back. It is never dropped (DL4)."""
    unwritten = _one_more(payload.unwritten, event.failure, event.now)
    if rules.burying is not None and not isinstance(event.failure, Refused):
        verdict = decide_retry(rules.burying, unwritten.count, unwritten.first, event.now, event.draw_ppm)
        if isinstance(verdict, Retry):
            return Burying(payload.failures, unwritten, verdict.at)
    return Held(Why.UNWRITTEN, Burying(payload.failures, unwritten))


def _one_more(before: Failures | None, failure: Failure, now: Instant) -> Failures:
    """The failures, with one that happened now."""
    return Failures(_number(before), now if before is None else before.first, now, str(failure))


def _number(before: Failures | None) -> int:
    """The number of the attempt that follows those."""
    return 1 if before is None else before.count + 1


def _check_attempt(attempt: object, failure: object, now: object, draw_ppm: object) -> None:
    """Raise Misuse unless these tell of an attempt that failed."""
    numbered(attempt, "the number of an attempt", 1)
    of_kind(failure, Failure, "a failure")
    of_kind(now, Instant, "the time")
    check_ppm(draw_ppm, "a draw in parts per million")


# --- an offset --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Outbox:
    """The payloads of one offset, and whether user code is done with it. One without payloads is delivered as it is."""

    payloads: tuple[Payload, ...] = ()
    sealed: bool = False

    def __attrs_post_init__(self) -> None:
        of_kind(self.payloads, tuple, "the payloads of an offset")
        of_kind(self.sealed, bool, "whether there will be no more")
        for payload in self.payloads:
            of_kind(payload, PAYLOADS, "a payload")


@final
@attrs.frozen
class Complete:
    """The offset is done. How many of its payloads were delivered, skipped and dead-lettered."""

    delivered: int
    skipped: int
    buried: int

    def __str__(self) -> str:
        return f"complete: {self.delivered} delivered, {self.skipped} skipped, {self.buried} dead-lettered"


@final
@attrs.frozen
class Incomplete:
    """The offset is not done. How many of its payloads are being sent, dead-lettered and held; whether more may come."""

    sending: int
    burying: int
    held: int
    more: bool

    def __str__(self) -> str:
        more = ", and user code is not done" if self.more else ""
        return f"incomplete: {self.sending} to send, {self.burying} to dead-letter, {self.held} held back{more}"


def added(outbox: Outbox, count: int) -> Outbox:
    """With so many payloads more, which are to be sent; their indices are the next ones.

    Raises:
        Misuse: User code is done with the offset, the count is no number from 0 on, or an argument is of another type.
    """
    of_kind(outbox, Outbox, "an outbox")
    numbered(count, "a number of payloads", 0)
    if outbox.sealed:
        raise Misuse("an offset that is done got another payload", todo="seal it after the last one")
    return Outbox((*outbox.payloads, *[Sending()] * count))


def sealed(outbox: Outbox) -> Outbox:
    """With no more payloads to come: user code is done with the offset."""
    of_kind(outbox, Outbox, "an outbox")
    return Outbox(outbox.payloads, sealed=True)


def told(rules: Rules, outbox: Outbox, index: int, event: Event) -> Outbox:
    """What becomes of the offset when something is heard of one of its payloads.

    Args:
        rules: What follows a failed delivery.
        outbox: The payloads of the offset.
        index: Which of them, from 0 on.
        event: What was heard.

    Raises:
        Misuse: There is no such payload, or as in `step`.
    """
    of_kind(outbox, Outbox, "an outbox")
    numbered(index, "the index of a payload", 0)
    if index >= len(outbox.payloads):
        raise Misuse(f"no payload {index} here", why=f"there are {len(outbox.payloads)}")
    after = step(rules, outbox.payloads[index], event)
    return Outbox((*outbox.payloads[:index], after, *outbox.payloads[index + 1 :]), outbox.sealed)


def judge(outbox: Outbox) -> Complete | Incomplete:
    """Whether the offset is done: user code is, and each payload is settled (DL1)."""
    of_kind(outbox, Outbox, "an outbox")

    def count(kind: type[Payload]) -> int:
        return sum(isinstance(payload, kind) for payload in outbox.payloads)

    sending, burying, held = count(Sending), count(Burying), count(Held)
    if outbox.sealed and not sending + burying + held:
        return Complete(count(Delivered), count(Skipped), count(Buried))
    return Incomplete(sending, burying, held, more=not outbox.sealed)


# --- the circuit breaker of a sink ------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Breaker:
    """When a circuit opens, and for how long. Invariants: 1 <= threshold; 0 < cooldown <= a century.

    Attributes:
        threshold: How many attempts in a row are unanswered when it opens.
        cooldown: How long nothing is tried then, in microseconds.
    """

    threshold: int = 5
    cooldown: Duration = 30 * SECOND

    def __attrs_post_init__(self) -> None:
        numbered(self.threshold, "a number of attempts", 1)
        check_delay(self.cooldown, "a cooldown in microseconds", 1)


@final
@attrs.frozen
class Closed:
    """Everything is admitted. Invariants: 0 <= era, unanswered."""

    era: int = 0
    unanswered: int = 0

    def __attrs_post_init__(self) -> None:
        numbered(self.era, "the era of a circuit", 0)
        numbered(self.unanswered, "a number of attempts", 0)


@final
@attrs.frozen
class Open:
    """Nothing is admitted until then; the next one after that is a probe. Invariant: 0 <= era."""

    era: int
    until: Instant

    def __attrs_post_init__(self) -> None:
        numbered(self.era, "the era of a circuit", 0)
        of_kind(self.until, Instant, "a time")


@final
@attrs.frozen
class HalfOpen:
    """A probe is under way. If nothing is heard of it until then, it is replaced by another. Invariant: 0 <= era."""

    era: int
    until: Instant

    def __attrs_post_init__(self) -> None:
        numbered(self.era, "the era of a circuit", 0)
        of_kind(self.until, Instant, "a time")


Circuit: TypeAlias = Closed | Open | HalfOpen
CIRCUITS: Final = (Closed, Open, HalfOpen)


@final
@attrs.frozen
class Admit:
    """Try it, and tell what came of it, with this era. The circuit is to be kept BEFORE it is tried."""

    circuit: Closed | HalfOpen

    @property
    def era(self) -> int:
        return self.circuit.era


@final
@attrs.frozen
class HoldBack:
    """Do not try it until then: the circuit is open, or its probe is under way."""

    until: Instant

    def __str__(self) -> str:
        return f"hold back until {self.until}"


class Outcome(Enum):
    """What came of an attempt, as far as the sink is concerned."""

    ANSWERED = "the sink took or refused it"
    UNANSWERED = "the sink did not answer"
    NOT_TRIED = "it was not tried after all"


def outcome_of(failure: Failure | None) -> Outcome:
    """What a reply says of the sink; None for success."""
    of_kind(failure, (Failure, NoneType), "a failure or None")
    return Outcome.ANSWERED if failure is None or isinstance(failure, Refused) else Outcome.UNANSWERED


def admit(breaker: Breaker, circuit: Circuit, now: Instant) -> Admit | HoldBack:
    """Whether a sink may be tried now.

    Args:
        breaker: When its circuit opens, and for how long.
        circuit: Where it stands.
        now: The time, on the clock that it was told before.

    Returns:
        `Admit` with the circuit as it is then, or `HoldBack` with the time until which to wait.

    Raises:
        Misuse: An argument is of another type, or the clocks differ.
    """
    of_kind(breaker, Breaker, "a breaker")
    of_kind(circuit, CIRCUITS, "a circuit")
    of_kind(now, Instant, "the time")
    if isinstance(circuit, Closed):
        return Admit(circuit)
    # A wait that is longer than a cooldown cannot be: the clock was set back, and nobody shall wait for it (DL9).
    if 0 < circuit.until - now <= breaker.cooldown:
        return HoldBack(circuit.until)
    return Admit(HalfOpen(circuit.era + 1, now + breaker.cooldown))


def heard(breaker: Breaker, circuit: Circuit, era: int, outcome: Outcome, now: Instant) -> Circuit:
    """What becomes of a circuit when the outcome of an attempt is heard.

    Args:
        breaker: When its circuit opens, and for how long.
        circuit: Where it stands.
        era: The era under which the attempt was admitted.
        outcome: What came of it.
        now: The time.

    Returns:
        Where it stands then; the same for an attempt of another era (DL10).

    Raises:
        Misuse: An argument is of another type.
    """
    of_kind(breaker, Breaker, "a breaker")
    of_kind(circuit, CIRCUITS, "a circuit")
    numbered(era, "the era of a circuit", 0)
    of_kind(outcome, Outcome, "an outcome")
    of_kind(now, Instant, "the time")
    if era != circuit.era:
        return circuit
    match circuit:
        case Closed():
            return _closed(breaker, circuit, outcome, now)
        case Open():
            return circuit  # nothing is admitted under this era
        case HalfOpen():
            return _half_open(breaker, circuit, outcome, now)
        case _:
            assert_never(circuit)


def _closed(breaker: Breaker, circuit: Closed, outcome: Outcome, now: Instant) -> Circuit:
    match outcome:
        case Outcome.ANSWERED:
            return Closed(circuit.era)
        case Outcome.UNANSWERED if circuit.unanswered + 1 >= breaker.threshold:
            return Open(circuit.era + 1, now + breaker.cooldown)
        case Outcome.UNANSWERED:
            return Closed(circuit.era, circuit.unanswered + 1)
        case Outcome.NOT_TRIED:
            return circuit
        case _:
            assert_never(outcome)


def _half_open(breaker: Breaker, circuit: HalfOpen, outcome: Outcome, now: Instant) -> Circuit:
    match outcome:
        case Outcome.ANSWERED:
            return Closed(circuit.era + 1)
        case Outcome.UNANSWERED:
            return Open(circuit.era + 1, now + breaker.cooldown)
        case Outcome.NOT_TRIED:
            return Open(circuit.era + 1, now)  # the next one may be the probe, at once
        case _:
            assert_never(outcome)


# --- dead letters -----------------------------------------------------------------------------------------------------

FORMAT: Final = "tidegate dead letter"
VERSION: Final = 1


@final
@attrs.frozen(kw_only=True)
class DeadLetter:
    """A payload that was not delivered, whole, with the record that it was made of and what went wrong.

    Invariants: numbers fit into 64 bits; 1 <= attempts; 0 <= index; names have a UTF-8 form.

    Attributes:
        record: What it was made of: topic, partition, offset, key, value, headers, timestamp.
        sink: Where it was to go.
        index: Which of the payloads of the record it is.
        payload: What was to be delivered; None for a tombstone.
        error: What the last attempt said.
        attempts: How many there were.
        first_failed: When the first one failed.
        last_failed: When the last one did.
    """

    record: Record
    sink: str
    index: int
    payload: bytes | None = attrs.field(repr=False)
    error: str = attrs.field(converter=shown)
    attempts: int
    first_failed: Instant
    last_failed: Instant

    def __attrs_post_init__(self) -> None:
        _check_record(self.record)
        named(self.sink, "a sink")
        _check_text(self.sink, "a sink")
        _check_number(self.index, "the index of a payload", 0)
        of_kind(self.payload, (bytes, NoneType), "a payload: bytes, or None")
        _check_number(self.attempts, "a number of attempts", 1)
        _check_instant(self.first_failed)
        _check_instant(self.last_failed)

    @property
    def id(self) -> str:
        """The same for the same payload of the same record, and for no other: the key of the message that carries it."""
        record = self.record
        identity = (record.topic, record.partition, record.offset, self.sink, self.index, _blob(self.payload))
        return f"{record.of}@{record.offset}:{_digest(identity)[:32]}"

    def __str__(self) -> str:
        return f"{self.record} to {self.sink!r}: {self.error!r}, attempts: {self.attempts}"


def dead_letter(burying: Burying, record: Record, sink: str, index: int, payload: bytes | None) -> DeadLetter:
    """The dead letter that is to be written for a payload.

    Args:
        burying: Where the payload stands.
        record: What it was made of.
        sink: Where it was to go.
        index: Which of the payloads of the record it is.
        payload: What was to be delivered, as the sink's adapter needs it to send it again.

    Raises:
        Misuse: An argument is of another type, a number does not fit, or a name has no UTF-8 form.
    """
    of_kind(burying, Burying, "a payload to be dead-lettered")
    failures = burying.failures
    return DeadLetter(
        record=record,
        sink=sink,
        index=index,
        payload=payload,
        error=failures.error,
        attempts=failures.count,
        first_failed=failures.first,
        last_failed=failures.last,
    )


class Flaw(Enum):
    """Why bytes are no dead letter. It never quotes them."""

    NOT_JSON = "it is no JSON, or JSON that means two things"
    FOREIGN = "it is something else"
    VERSION = "it is of a version that is not known"
    FIELDS = "a field is missing, or of another kind"
    CORRUPT = "it was changed: its digest is another"


@final
@attrs.frozen
class Undecodable:
    """The bytes are no dead letter."""

    flaw: Flaw

    def __str__(self) -> str:
        return f"undecodable: {self.flaw.value}"


def encode(letter: DeadLetter) -> bytes:
    """A dead letter as bytes: one line of JSON in ASCII.

    Raises:
        Misuse: It is no dead letter.
    """
    of_kind(letter, DeadLetter, "a dead letter")
    fields = _fields_of(letter)
    return json.dumps({**fields, "sha256": _digest(fields)}).encode("ascii")


def decode(data: bytes) -> DeadLetter | Undecodable:
    """The dead letter that bytes are; the inverse of `encode`.

    Args:
        data: The value of a message, whoever wrote it.

    Returns:
        The dead letter, or what is wrong with the bytes. Spaces and the order of fields do not matter.

    Raises:
        Misuse: It is no bytes.
    """
    of_kind(data, bytes, "an encoded dead letter")
    try:
        fields: object = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            return Undecodable(Flaw.FOREIGN)
        told_digest = fields.pop("sha256", None)
        actual_digest = _digest(fields)
    except (ValueError, RecursionError):
        return Undecodable(Flaw.NOT_JSON)
    try:
        if _number_of(fields["version"]) != VERSION:
            return Undecodable(Flaw.VERSION)
        if told_digest != actual_digest:
            return Undecodable(Flaw.CORRUPT)
        letter = _letter_of(fields)
    except (
        ValueError,
        KeyError,
    ):  # a Misuse, another kind of field, base64 that is none, no UTF-8 form; or no such field
        return Undecodable(Flaw.FIELDS)
    return letter if fields.keys() == _fields_of(letter).keys() else Undecodable(Flaw.FIELDS)


def _fields_of(letter: DeadLetter) -> dict[str, object]:
    """The fields of a dead letter in JSON, but for its digest."""
    record = letter.record
    return {
        "format": FORMAT,
        "version": VERSION,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _blob(record.key),
        "value": _blob(record.value),
        "headers": [[name, _blob(value)] for name, value in record.headers],
        "timestamp": None if record.timestamp is None else _stamp(record.timestamp),
        "sink": letter.sink,
        "index": letter.index,
        "payload": _blob(letter.payload),
        "error": letter.error,
        "attempts": letter.attempts,
        "first_failed": _stamp(letter.first_failed),
        "last_failed": _stamp(letter.last_failed),
    }


def _letter_of(fields: Mapping[str, object]) -> DeadLetter:
    """The dead letter of these fields; ValueError where one is of another kind, KeyError where one is missing."""
    return DeadLetter(
        record=Record(
            _text_of(fields["topic"]),
            _number_of(fields["partition"]),
            _number_of(fields["offset"]),
            _bytes_of(fields["key"]),
            _bytes_of(fields["value"]),
            tuple(_header_of(header) for header in _list_of(fields["headers"])),
            None if fields["timestamp"] is None else _instant_of(fields["timestamp"]),
        ),
        sink=_text_of(fields["sink"]),
        index=_number_of(fields["index"]),
        payload=_bytes_of(fields["payload"]),
        error=_text_of(fields["error"]),
        attempts=_number_of(fields["attempts"]),
        first_failed=_instant_of(fields["first_failed"]),
        last_failed=_instant_of(fields["last_failed"]),
    )


# --- helpers: fields ---------------------------------------------------------------------------------------------------


def _blob(data: bytes | None) -> dict[str, str] | None:
    """Bytes in JSON: as text where they are UTF-8, for people; in base64 where they are not."""
    if data is None:
        return None
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


def _stamp(at: Instant) -> dict[str, int | str]:
    return {"us": at.at, "clock": at.clock}


def _digest(content: object) -> str:
    """The SHA-256 of what is written, whatever the order of its fields and the spaces between them."""
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON; ValueError where a name comes twice, for then readers differ in what it means."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _no_number(_: str) -> object:
    raise ValueError("NaN and Infinity are no JSON")


def _text_of(value: object) -> str:
    if not isinstance(value, str):
        raise Misuse("no text")
    return value


def _number_of(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misuse("no whole number")
    return value


def _list_of(value: object) -> list[object]:
    if not isinstance(value, list):
        raise Misuse("no list")
    return value


def _header_of(value: object) -> tuple[str, bytes | None]:
    name, held = _list_of(value)
    return _text_of(name), _bytes_of(held)


def _bytes_of(value: object) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) != 1:
        raise Misuse("no bytes")
    if "text" in value:
        return _text_of(value["text"]).encode("utf-8")
    return b64decode(_text_of(value["base64"]), validate=True)


def _instant_of(value: object) -> Instant:
    if not isinstance(value, dict) or len(value) != 2:
        raise Misuse("no instant")
    return Instant(_number_of(value["us"]), ClockName(_text_of(value["clock"])))


# --- helpers: what can be written down --------------------------------------------------------------------------------


def _check_text(text: object, what: str) -> None:
    """Raise Misuse unless it is a string that has a UTF-8 form."""
    if not isinstance(text, str) or has_lone_surrogate(text):
        raise Misuse(f"a {type(text).__name__} cannot name {what}", why="it is no text, or has no UTF-8 form")


def _check_number(value: object, what: str, least: int) -> None:
    """Raise Misuse unless it is an integer from `least` on that fits into 64 bits."""
    numbered(value, what, least)
    if value not in INT64:
        raise Misuse(f"{what} does not fit into 64 bits")


def _check_instant(at: Instant) -> None:
    """Raise Misuse unless it is an instant that can be written down."""
    of_kind(at, Instant, "a time")
    _check_text(at.clock, "a clock")
    _check_number(at.at, "a time in microseconds", INT64.start)


def _check_header(header: object) -> None:
    """Raise Misuse unless it is a name with a value."""
    if not isinstance(header, tuple) or len(header) != 2:
        raise Misuse(f"a {type(header).__name__} is no header", why="it is a name with a value")
    _check_text(header[0], "a header")
    of_kind(header[1], (bytes, NoneType), "the value of a header: bytes, or None")


def _check_record(record: Record) -> None:
    """Raise Misuse unless it is a record that can be written down."""
    of_kind(record, Record, "a record")
    _check_text(record.topic, "a topic")
    _check_number(record.partition, "a partition", 0)
    _check_number(record.offset, "an offset", 0)
    of_kind(record.key, (bytes, NoneType), "a key: bytes, or None")
    of_kind(record.value, (bytes, NoneType), "a value: bytes, or None")
    of_kind(record.headers, tuple, "the headers of a record")
    for header in record.headers:
        _check_header(header)
    if record.timestamp is not None:
        _check_instant(record.timestamp)
