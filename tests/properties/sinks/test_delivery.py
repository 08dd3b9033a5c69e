from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, PPM, SECOND, STORE, WALL, Instant
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.checks.strategies.failures import failures as drawn_failures
from tidegate.sinks import delivery
from tidegate.sinks.checks.laws import delivery as laws
from tidegate.sinks.checks.strategies import delivery as drawn
from tidegate.sinks.delivery import (
    Acknowledged,
    Action,
    Complete,
    DeadLettered,
    DeadLetterFailed,
    DeadLettering,
    DeadLetterWritten,
    Delivered,
    DeliveryEvent,
    DeliveryRules,
    Dismissed,
    Failed,
    Failures,
    Held,
    Incomplete,
    OffsetDelivery,
    Payload,
    Reason,
    Released,
    Sending,
    Skipped,
)

START = Instant(0, WALL)
PATIENT = Policy(backoff=Fixed(5), attempts_max=2)
RULES = DeliveryRules(sending=PATIENT, dead_lettering=PATIENT)


def failed(attempt: int = 1, failure: Failure | None = None, answer: Action = Action.RETRY, at: int = 0) -> Failed:
    return Failed(attempt, failure or Ambiguous("no reply"), answer, START + at)


def write_failures(attempt: int = 1, failure: Failure | None = None, at: int = 0) -> DeadLetterFailed:
    return DeadLetterFailed(attempt, failure or Ambiguous("no reply"), START + at)


def failures(count: int = 1, error: str = "Ambiguous(no reply)") -> Failures:
    return Failures(count, START, START, error)


# --- the laws: payloads and offsets -------------------------------------------------------------------------------------


@given(drawn.rules(), st.lists(drawn.delivery_events(), max_size=12))
@example(RULES, [failed(1), failed(2)])
@example(RULES, [failed(answer=Action.DEAD_LETTER)])
@example(RULES, [failed(1, NotApplied("closed"))])
def test_dl1_payloads_are_settled_by_what_was_received(rules: DeliveryRules, events: list[DeliveryEvent]) -> None:
    payload: Payload = Sending()
    for number, event in enumerate(events, 1):
        payload = delivery.step(rules, payload, event)
        assert laws.is_true_of_the_past(rules, events[:number], payload)


@attrs.frozen
class Attempt:
    index: int
    weather: int  # 0 fine, 1 lost before, 2 lost after, 3 refused
    answer: Action


@attrs.frozen
class Arrived:
    which: int
    again: bool


@attrs.frozen
class Looked:
    index: int
    event: Released | Dismissed


@attrs.frozen
class Done:
    pass


Act = Attempt | Arrived | Looked | Done
SHORT = st.integers(0, 2)
ACTS = st.one_of(
    st.builds(Attempt, SHORT, st.integers(0, 3), st.sampled_from(Action)),
    st.builds(Attempt, SHORT, st.integers(0, 3), st.just(Action.RETRY)),
    st.builds(Arrived, st.integers(0, 3), st.booleans()),
    st.builds(Looked, SHORT, st.sampled_from((Released(), Dismissed()))),
    st.just(Done()),
)
WEATHER = (None, Ambiguous("no reply"), Ambiguous("no reply"), Refused("the table is not there"))


@attrs.define
class World:
    """An offset with three payloads, a sink, a dead-letter topic, and unreliable replies."""

    rules: DeliveryRules
    outbox: OffsetDelivery = attrs.field(factory=lambda: delivery.added(OffsetDelivery(), 3))
    sink: set[int] = attrs.field(factory=set)
    dead_letters: set[int] = attrs.field(factory=set)
    replies: list[tuple[int, DeliveryEvent]] = attrs.field(factory=list)
    received: list[list[DeliveryEvent]] = attrs.field(factory=lambda: [[], [], []])

    def act(self, act: Act) -> None:
        match act:
            case Done():
                self.outbox = delivery.sealed(self.outbox)
            case Attempt(index, weather, answer):
                self.attempt(index, weather, answer)
            case Looked(index, event):
                self.receive(index, event)
            case Arrived(which, again):
                if which < len(self.replies):
                    self.receive(*(self.replies[which] if again else self.replies.pop(which)))

    def attempt(self, index: int, weather: int, answer: Action) -> None:
        failure = WEATHER[weather]
        match self.outbox.payloads[index]:
            case Sending() as payload:
                arrived, fine = self.sink, Acknowledged()
                event: DeliveryEvent = fine if failure is None else failed(payload.attempt, failure, answer)
            case DeadLettering() as payload:
                arrived, written = self.dead_letters, DeadLetterWritten()
                event = written if failure is None else write_failures(payload.attempt, failure)
            case _:
                return
        if weather in {0, 2}:
            arrived.add(index)
        self.replies.append((index, event))

    def receive(self, index: int, event: DeliveryEvent) -> None:
        self.received[index].append(event)
        after = delivery.step(self.rules, self.outbox.payloads[index], event)
        payloads = self.outbox.payloads
        self.outbox = OffsetDelivery((*payloads[:index], after, *payloads[index + 1 :]), self.outbox.sealed)

    def done(self) -> set[int]:
        skipped = (
            i for i in range(3) if any(laws.decided_to_skip(self.rules, self.received[i], why) for why in Reason)
        )
        return {*self.sink, *self.dead_letters, *skipped}


def lasting(index: int) -> list[Act]:
    return [act for _ in range(2) for act in (Attempt(index, 1, Action.RETRY), Arrived(0, again=False))]


@given(drawn.rules(), st.lists(ACTS, max_size=40))
@example(RULES, [Done(), *(act for i in range(3) for act in lasting(i))])
@example(RULES, [Done(), Attempt(0, 0, Action.RETRY), Arrived(0, again=False), *lasting(1), *lasting(2)])
@example(RULES, [*(act for i in range(3) for act in (Attempt(i, 0, Action.RETRY), Arrived(0, again=False)))])
@example(RULES, [Done(), *(act for i in range(3) for act in (Attempt(i, 1, Action.HOLD), Arrived(0, again=False)))])
def test_dl1_nothing_is_lost(rules: DeliveryRules, acts: Sequence[Act]) -> None:
    world = World(rules)
    for act in acts:
        world.act(act)
        verdict = delivery.completion(world.outbox)
        sealed = world.outbox.sealed
        assert laws.completes_only_what_is_done(3, world.done(), verdict, sealed=sealed)


STEPS = (drawn.rules(), drawn.payloads(), drawn.delivery_events())


@given(*STEPS)
@example(RULES, Delivered(), failed())
def test_dl2_what_is_settled_stays(rules: DeliveryRules, payload: Payload, event: DeliveryEvent) -> None:
    assert laws.stays_settled(payload, delivery.step(rules, payload, event))


@given(
    drawn.rules(),
    drawn.offset_deliveries(),
    st.lists(st.tuples(st.integers(0, 3), drawn.delivery_events()), max_size=9),
)
@example(RULES, OffsetDelivery((Delivered(),), sealed=True), [(0, failed())])
def test_dl2_what_is_complete_stays(
    rules: DeliveryRules, outbox: OffsetDelivery, events: list[tuple[int, DeliveryEvent]]
) -> None:
    for index, event in events:
        before = delivery.completion(outbox)
        payloads = [
            delivery.step(rules, payload, event) if place == index else payload
            for place, payload in enumerate(outbox.payloads)
        ]
        outbox = OffsetDelivery(tuple(payloads), outbox.sealed)
        assert laws.stays_complete(before, delivery.completion(outbox))


@given(*STEPS)
@example(RULES, Sending(), failed())
@example(RULES, Sending(), failed(failure=Refused("no")))
@example(RULES, Sending(failures()), failed(2))
@example(RULES, Held(Reason.LASTING, Sending(failures(2))), Released())
@example(RULES, Held(Reason.ANSWERED, Sending()), Released())
def test_dl3_it_is_sent_again_as_allowed(rules: DeliveryRules, payload: Payload, event: DeliveryEvent) -> None:
    assert laws.is_sent_again_as_allowed(rules, payload, event, delivery.step(rules, payload, event))


@given(*STEPS)
@example(RULES, DeadLettering(failures(), failures()), write_failures(2))
@example(RULES, DeadLettering(failures()), write_failures(failure=Refused("too large")))
def test_dl4_nothing_is_dropped(rules: DeliveryRules, payload: Payload, event: DeliveryEvent) -> None:
    assert laws.is_never_dropped(payload, event, delivery.step(rules, payload, event))


@given(*STEPS)
@example(RULES, Sending(failures()), failed(1))
def test_dl5_the_past_is_past(rules: DeliveryRules, payload: Payload, event: DeliveryEvent) -> None:
    assert laws.ignores_the_past(payload, event, delivery.step(rules, payload, event))


@given(drawn.rules(), st.lists(st.tuples(drawn_failures(), st.sampled_from(Action)), max_size=12))
@example(RULES, [(Ambiguous("no reply"), Action.RETRY)] * 6)
def test_dl6_payloads_come_to_rest(rules: DeliveryRules, faults: list[tuple[Failure, Action]]) -> None:
    payload: Payload = Sending()
    for number, (failure, answer) in enumerate(faults, 1):
        now = getattr(payload, "not_before", None) or START
        match payload:
            case Sending():
                payload = delivery.step(rules, payload, Failed(payload.attempt, failure, answer, now))
            case DeadLettering():
                payload = delivery.step(rules, payload, DeadLetterFailed(payload.attempt, failure, now))
            case _:
                pass  # at rest
        assert laws.comes_to_rest(rules, number, payload)


# --- planted bugs -------------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    delivery,
    # Drakkar logs an exhausted payload as dead-lettered, and drops it.
    bug(
        "dropped at last",
        ("        DeadLettering(failures) if rules", "        Skipped(Reason.LASTING) if rules"),
        test_dl1_payloads_are_settled_by_what_was_received, test_dl1_nothing_is_lost,
    ),
    bug(
        "a dead letter counts as written as soon as it is sent",
        ("        DeadLettering(failures) if rules", "        DeadLettered() if rules"),
        ("return DeadLettering(payload.failures, write_failures, verdict.at)", "return DeadLettered()"),
        test_dl1_payloads_are_settled_by_what_was_received, test_dl1_nothing_is_lost, test_dl4_nothing_is_dropped,
    ),
    # Drakkar: a closed sink returns silently.
    bug(
        "closed is delivered",
        (
            "    if event.answer is not Action.RETRY:\n",
            "    if type(event.failure).__name__ == 'NotApplied':\n        return Delivered()\n    if event.answer is not Action.RETRY:\n",
        ),
        test_dl1_payloads_are_settled_by_what_was_received,
    ),
    # No request is in flight.
    bug("held is done", ("sending + dead_lettering + held:", "sending + dead_lettering:"), test_dl1_nothing_is_lost),
    # Drakkar: one hook raises, and the offset commits while another sink sends.
    bug(
        "some are done",
        ("not sending + dead_lettering + held:", "any(isinstance(each, SETTLED) for each in delivery.payloads):"),
        test_dl1_nothing_is_lost,
    ),
    # The offset completes between two payloads of a fan-out.
    bug("done before it is sealed", ("if delivery.sealed and not", "if not"), test_dl1_nothing_is_lost),
    bug(
        "a late failure revives",
        (
            "        case Delivered() | Skipped() | DeadLettered():\n",
            ("        case Delivered() if isinstance(event, Failed):\n            return Sending(_one_more(None, event.failure, event.now))\n"
            "        case Delivered() | Skipped() | DeadLettered():\n"),
        ),
        test_dl2_what_is_settled_stays, test_dl2_what_is_complete_stays,
    ),
    # A refusal is taken for a transient failure.
    bug(
        "what was refused is sent again", ("if isinstance(event.failure, Refused):\n", "if False:\n"),
        test_dl3_it_is_sent_again_as_allowed,
    ),
    # Drakkar: no back-off.
    bug(
        "sent again at once", ("Sending(failures, verdict.at)", "Sending(failures)"),
        test_dl3_it_is_sent_again_as_allowed,
    ),
    bug(
        "once too often",
        (
            "decide_retry(rules.sending,",
            "decide_retry(attrs.evolve(rules.sending, attempts_max=rules.sending.attempts_max and rules.sending.attempts_max + 1),",
        ),
        test_dl3_it_is_sent_again_as_allowed,
    ),
    bug(
        "the count does not survive the delay", ("Sending(failures, verdict.at)", "Sending(None, verdict.at)"),
        test_dl3_it_is_sent_again_as_allowed, test_dl6_payloads_come_to_rest,
    ),
    # Drakkar: if the dead-letter topic is down, the payload is lost and its offset commits.
    bug(
        "dropped unwritten",
        ("Held(Reason.UNWRITTEN, DeadLettering(payload.failures, write_failures))", "Skipped(Reason.UNWRITTEN)"),
        test_dl4_nothing_is_dropped,
    ),
    bug(
        "a failure that arrives twice counts twice",
        ("case Failed(attempt) if attempt == payload.attempt:", "case Failed(attempt):"),
        test_dl5_the_past_is_past,
    ),
)  # fmt: skip


# --- facts: payloads ----------------------------------------------------------------------------------------------------


def test_a_sink_that_is_away_gets_three_attempts_and_then_the_dead_letters_have_it() -> None:
    payload: Payload = Sending()
    seen = list[Payload]()
    first, second, third = (START, START + 150 * MILLISECOND, START + SECOND)
    away = Ambiguous("no reply")
    for event in (
        Failed(1, away, Action.RETRY, first),
        Failed(1, away, Action.RETRY, first),
        Failed(2, away, Action.RETRY, second),
        Failed(3, NotApplied("connection refused"), Action.RETRY, third),
        DeadLetterFailed(1, NotDurable("one replica"), third),
        DeadLetterWritten(),
        Released(),
    ):
        payload = delivery.step(DeliveryRules(), payload, event)
        seen.append(payload)

    one, two = Failures(1, first, first, str(away)), Failures(2, first, second, str(away))
    three = Failures(3, first, third, "NotApplied(connection refused)")
    assert seen == [
        Sending(one, first + 100 * MILLISECOND),
        Sending(one, first + 100 * MILLISECOND),
        Sending(two, second + 200 * MILLISECOND),
        DeadLettering(three),
        DeadLettering(three, Failures(1, third, third, "NotDurable(one replica)"), third + 100 * MILLISECOND),
        DeadLettered(),
        DeadLettered(),
    ]


@pytest.mark.parametrize(
    ("rules", "event", "expected"),
    [
        (RULES, failed(answer=Action.SKIP), Skipped(Reason.ANSWERED)),
        (RULES, failed(answer=Action.HOLD), Held(Reason.ANSWERED, Sending(failures()))),
        (RULES, failed(answer=Action.DEAD_LETTER), DeadLettering(failures())),
        (RULES, failed(failure=Refused("no")), DeadLettering(failures(error="Refused(no)"))),
        (attrs.evolve(RULES, refused=Action.SKIP), failed(failure=Refused("no")), Skipped(Reason.REFUSED)),
        (
            DeliveryRules(sending=PATIENT, dead_lettering=None, refused=Action.HOLD, lasting=Action.HOLD),
            failed(answer=Action.DEAD_LETTER),
            Held(Reason.NO_DEAD_LETTERS, Sending(failures())),
        ),
        (
            DeliveryRules(sending=Policy(attempts_max=1), lasting=Action.HOLD),
            failed(),
            Held(Reason.LASTING, Sending(failures())),
        ),
        (DeliveryRules(sending=Policy(attempts_max=1), lasting=Action.SKIP), failed(), Skipped(Reason.LASTING)),
    ],
)
def test_a_failure_is_followed_by_what_is_answered_or_ruled(
    rules: DeliveryRules, event: Failed, expected: Payload
) -> None:
    assert delivery.step(rules, Sending(), event) == expected


def test_what_is_held_goes_on_where_it_was() -> None:
    held = Held(Reason.LASTING, Sending(failures(2)))
    unburied = delivery.step(RULES, DeadLettering(failures()), write_failures(failure=Refused("too large")))
    again = delivery.step(RULES, held, Released())

    assert again == Sending(failures(2))
    assert delivery.step(attrs.evolve(RULES, lasting=Action.HOLD), again, failed(3)) == Held(
        Reason.LASTING, Sending(failures(3))
    )
    assert unburied == Held(Reason.UNWRITTEN, DeadLettering(failures(), failures(error="Refused(too large)")))
    assert delivery.step(RULES, unburied, Released()) == DeadLettering(failures(), failures(error="Refused(too large)"))
    assert delivery.step(RULES, unburied, Dismissed()) == Skipped(Reason.DISMISSED)


def test_every_state_has_an_answer_to_every_event() -> None:
    dead_lettering = DeadLettering(failures())
    open_states: tuple[Payload, ...] = (
        Sending(),
        dead_lettering,
        Held(Reason.LASTING, Sending()),
        Held(Reason.UNWRITTEN, dead_lettering),
    )
    events: tuple[DeliveryEvent, ...] = (
        Acknowledged(),
        DeadLetterWritten(),
        failed(9),
        write_failures(9),
        Released(),
        Dismissed(),
    )

    table = [[delivery.step(RULES, payload, event) for event in events] for payload in open_states]
    done, dead_lettered, out = Delivered(), DeadLettered(), Skipped(Reason.DISMISSED)
    sending, held, unwritten_yet = open_states[0], open_states[2], open_states[3]
    assert table == [
        [done, sending, sending, sending, sending, sending],
        [done, dead_lettered, dead_lettering, dead_lettering, dead_lettering, dead_lettering],
        [done, held, held, held, sending, out],
        [done, dead_lettered, unwritten_yet, unwritten_yet, dead_lettering, out],
    ]
    for settled in (done, dead_lettered, out):
        assert all(delivery.step(RULES, settled, event) == settled for event in events)


def test_a_dead_letter_is_tried_five_times_and_then_held_back() -> None:
    payload: Payload = DeadLettering(failures())
    waits = list[int]()
    while isinstance(payload, DeadLettering):
        payload = delivery.step(DeliveryRules(), payload, write_failures(payload.attempt))
        waits += [payload.not_before - START] if isinstance(payload, DeadLettering) and payload.not_before else []
    jittery = Policy(backoff=Fixed(9 * SECOND), jitter_ppm=PPM)
    late = START + 9 * SECOND

    assert payload == Held(Reason.UNWRITTEN, DeadLettering(failures(), failures(5)))
    assert waits == [100 * MILLISECOND, 200 * MILLISECOND, 400 * MILLISECOND, 800 * MILLISECOND]
    assert delivery.step(DeliveryRules(sending=jittery), Sending(), failed()) == Sending(failures(), late)
    assert delivery.step(
        DeliveryRules(dead_lettering=jittery), DeadLettering(failures()), write_failures()
    ) == DeadLettering(failures(), failures(), late)


def test_without_dead_letters_an_old_burial_is_held_back() -> None:
    """DeliveryRules may change while a dead letter is being written."""
    rules = DeliveryRules(dead_lettering=None, refused=Action.SKIP, lasting=Action.SKIP)

    assert delivery.step(rules, DeadLettering(failures()), write_failures()) == Held(
        Reason.UNWRITTEN, DeadLettering(failures(), failures())
    )


# --- facts: offsets -----------------------------------------------------------------------------------------------------


def test_an_offset_waits_for_each_of_its_payloads() -> None:
    outbox = delivery.added(delivery.added(OffsetDelivery(), 2), 1)
    outbox = delivery.updated(RULES, outbox, 0, Acknowledged())
    outbox = delivery.updated(RULES, outbox, 1, failed(answer=Action.SKIP))
    outbox = delivery.updated(RULES, outbox, 2, failed(answer=Action.DEAD_LETTER))

    assert str(delivery.completion(outbox)) == (
        "incomplete: 0 to send, 1 to dead-letter, 0 held back, and user code is not done"
    )
    outbox = delivery.updated(RULES, delivery.sealed(outbox), 2, DeadLetterWritten())
    assert delivery.completion(outbox) == Complete(delivered=1, skipped=1, dead_lettered=1)
    assert str(delivery.completion(outbox)) == "complete: 1 delivered, 1 skipped, 1 dead-lettered"


def test_an_offset_without_payloads_is_complete_when_user_code_is_done() -> None:
    assert delivery.completion(OffsetDelivery()) == Incomplete(0, 0, 0, more=True)
    assert delivery.completion(delivery.sealed(OffsetDelivery())) == Complete(0, 0, 0)
    assert str(delivery.completion(OffsetDelivery((Held(Reason.LASTING, Sending()),), sealed=True))) == (
        "incomplete: 0 to send, 0 to dead-letter, 1 held back"
    )


def test_an_error_is_cut_and_masked_once() -> None:
    long = "x" * 4_090 + "mongodb://u:p@a,b/?x@y " + "\ud800" + "z" * 9

    assert len(delivery.shown(long)) == delivery.ERROR_MAX
    assert delivery.shown(delivery.shown(long)) == delivery.shown(long)
    assert delivery.shown("at mongodb://u:p@ss/w@host") == "at mongodb://***@host"
    assert delivery.shown("\ud800") == "\\ud800"


@given(st.integers(0, 40), st.sampled_from(("", " gone", " gone " * 2_000)))
def test_an_error_that_is_cut_shows_no_password(place: int, rest: str) -> None:
    kept = delivery.shown("x" * (delivery.ERROR_MAX - place - 1) + " mongodb://me:hunter2@host" + rest)

    assert "hunter" not in kept
    assert len(kept) <= delivery.ERROR_MAX
    assert delivery.shown(kept) == kept


def test_an_error_of_ten_million_words_is_kept_at_once() -> None:
    """Only the stored part is read; a full read took ten seconds."""
    before = delivery.shown("no " * 1_400)

    assert delivery.shown("no " * 10_000_000) == before


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: DeliveryRules(sending=None),  # type: ignore[arg-type]
        lambda: DeliveryRules(dead_lettering=5),  # type: ignore[arg-type]
        lambda: DeliveryRules(refused="skip"),  # type: ignore[arg-type]
        lambda: DeliveryRules(refused=Action.RETRY),
        lambda: DeliveryRules(lasting=Action.RETRY),
        lambda: DeliveryRules(dead_lettering=None),
        lambda: delivery.step(RULES, Sending(), failed(0)),
        lambda: delivery.step(RULES, Sending(), failed(True)),
        lambda: delivery.step(RULES, Sending(), Failed(1, "no reply", Action.RETRY, START)),  # type: ignore[arg-type]
        lambda: delivery.step(RULES, Sending(), Failed(1, Refused(), "retry", START)),  # type: ignore[arg-type]
        lambda: delivery.step(RULES, Sending(), Failed(1, Refused(), Action.RETRY, 0)),  # type: ignore[arg-type]
        lambda: delivery.step(RULES, Sending(), Failed(1, Refused(), Action.RETRY, START, PPM + 1)),
        lambda: delivery.step(RULES, Sending(), DeadLetterFailed(0, Refused(), START)),
        lambda: delivery.shown(""),
        lambda: delivery.shown(b"no reply"),  # type: ignore[arg-type]
        lambda: delivery.step(None, Sending(), DeadLetterWritten()),  # type: ignore[arg-type]
        lambda: delivery.step(RULES, None, DeadLetterWritten()),  # type: ignore[arg-type]
        lambda: delivery.step(RULES, Sending(), "written"),  # type: ignore[arg-type]
        lambda: delivery.step(RULES, Sending(failures()), Failed(2, Ambiguous(), Action.RETRY, Instant(0, STORE))),
        lambda: delivery.added(None, 1),  # type: ignore[arg-type]
        lambda: delivery.added(OffsetDelivery(), -1),
        lambda: delivery.added(OffsetDelivery(), 10**12),
        lambda: delivery.added(delivery.added(OffsetDelivery(), delivery.PAYLOADS_MAX), 1),
        lambda: delivery.added(delivery.sealed(OffsetDelivery()), 1),
        lambda: delivery.sealed(None),  # type: ignore[arg-type]
        lambda: delivery.updated(RULES, OffsetDelivery(), 0, DeadLetterWritten()),
        lambda: delivery.updated(RULES, None, 0, DeadLetterWritten()),  # type: ignore[arg-type]
        lambda: delivery.updated(RULES, OffsetDelivery(), -1, DeadLetterWritten()),
        lambda: delivery.completion(None),  # type: ignore[arg-type]
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse) as raised:
        wrong()

    assert "hunter2" not in str(raised.value)


def test_every_value_may_be_a_key() -> None:
    every = (
        Sending(failures()),
        Held(Reason.LASTING, Sending()),
        OffsetDelivery((Sending(),)),
        RULES,
        failed(),
    )

    assert len({*every, *every}) == len(every)
