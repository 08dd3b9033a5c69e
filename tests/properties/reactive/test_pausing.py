from __future__ import annotations

from typing import Any, Final

import pytest
from tests.properties.on_documents import is_read_or_misuse, run

from tidegate.model.documents import Document
from tidegate.model.effects import Ambiguous, NotApplied
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import FindOne, UpdateOne
from tidegate.reactive.admin.pausing import CONTROL, PausedTask, Pausing, paused_after, paused_in
from tidegate.reactive.checks.laws import desk as laws
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.world import CLOCK, contents, world_with

PAUSING: Final = Pausing(attempts=2, pauses=Pauses(Fixed(0)))
SINCE: Final = Instant(7 * SECOND)
WORLD: Final = world_with({}).write(CLOCK, SINCE)


def test_what_is_paused_is_so_until_it_is_resumed() -> None:
    """Law PS1: repeating has no effect, and other tasks stay as they are."""
    none, _ = run(PAUSING.paused(), WORLD)
    both, world = run(PAUSING.pause("bill", "mail", "bill"), WORLD)
    again, same = run(PAUSING.pause("mail"), world)
    one, resumed = run(PAUSING.resume("bill", "none"), world)

    assert none == ()
    assert both == again == (PausedTask("bill", SINCE), PausedTask("mail", SINCE))
    assert same == world
    assert one == run(PAUSING.paused(), resumed)[0] == (PausedTask("mail", SINCE),)
    (control,) = contents(resumed, CONTROL)
    assert control == Document.of({"_id": "reactive", "version": 2, "paused": ({"task": "mail", "since": SINCE},)})
    assert laws.what_is_said_stays([("mail", True), ("bill", False)], [each.task for each in one])
    assert not laws.what_is_said_stays([("mail", False)], [each.task for each in one])


def test_where_nobody_answers_that_is_said() -> None:
    never: Any = lambda effect: Ambiguous("no reply") if isinstance(effect, FindOne) else None  # noqa: E731
    with pytest.raises(Ambiguous, match="no reply"):
        run(PAUSING.pause("bill"), WORLD, never)
    nobody = variant(Pausing, ("Eq(_VERSION, version)", "Eq(_VERSION, 77)"))(attempts=2, pauses=PAUSING.pauses)
    with pytest.raises(NotApplied, match="others have written"):
        run(nobody.pause("bill"), WORLD)
    once: Any = iter([NotApplied("not now")])
    paused, _ = run(
        PAUSING.pause("bill"), WORLD, lambda effect: next(once, None) if isinstance(effect, UpdateOne) else None
    )
    assert [each.task for each in paused] == ["bill"]


def test_what_is_no_control_document_is_said() -> None:
    good = Document.of({"_id": "reactive", "version": 2, "paused": ({"task": "mail", "since": SINCE},)})
    assert is_read_or_misuse(paused_in, good)
    assert paused_in(None) == ()
    with pytest.raises(Misuse):
        run(PAUSING.pause(""), WORLD)
    with pytest.raises(Misuse):
        paused_after((), (7,), SINCE, is_paused=True)  # type: ignore[arg-type]
