"""The laws of `tidegate.triggers.trigger` as predicates over its decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegate.model.documents import Document
from tidegate.triggers.conditions import CannotTell, ConditionVerdict, Holds
from tidegate.triggers.contexts import context_id
from tidegate.triggers.trigger import Noticed, NotProvided, Occurrence, Provided, Registration, Trigger


def triggers_are_named_by_all(left: Trigger, right: Trigger) -> bool:
    """Law TG1, of triggers."""
    return (left == right) is (left.id == right.id)


def occurrences_are_named_by_both(left: Occurrence, right: Occurrence) -> bool:
    """Law TG1, of occurrences, whenever seen."""
    happening = [(each.condition_id, context_id(each.context)) for each in (left, right)]
    return (happening[0] == happening[1]) is (left.id == right.id)


def all_that_holds_is_noticed(answers: Mapping[str, ConditionVerdict], noticed: Noticed) -> bool:
    """Law TG2."""
    held = [name for name, answer in answers.items() if isinstance(answer, Holds)]
    unknown = [(name, answer.reason) for name, answer in answers.items() if isinstance(answer, CannotTell)]
    return [each.condition_id for each in noticed.occurrences] == held and list(noticed.unknown) == unknown


def the_first_decides(parts: Sequence[Provided | NotProvided], whole: Provided | NotProvided) -> bool:
    """Law TG3."""
    first = next((part for part in parts if isinstance(part, Provided)), None)
    reasons = tuple(reason for part in parts if isinstance(part, NotProvided) for reason in part.reasons)
    return whole == (first or NotProvided(reasons))


def provides_a_document_or_reasons(said: Document | None, answer: Provided | NotProvided) -> bool:
    """Law TG4: the answer is the user's document, or one reason why there is none (`said` is
    None).
    """
    if said is not None:
        return answer == Provided(said)
    return isinstance(answer, NotProvided) and len(answer.reasons) == 1


def registers_what_is_wanted(
    stored: Collection[Trigger], task: str, wanted: Collection[Trigger], what: Registration, again: Registration
) -> bool:
    """Law TG5."""
    after = registered(stored, what)
    others = {each for each in stored if each.task != task}
    touched = {*what.add, *what.remove}
    return (
        after == others | set(wanted) and touched.isdisjoint(set(stored) & after) and again == Registration((), (), ())
    )


def drops_what_nobody_waits_for(stored: Collection[Trigger], what: Registration) -> bool:
    """Law TG6."""
    before, after = (
        {name for each in some for name in each.condition_ids} for some in (stored, registered(stored, what))
    )
    return list(what.conditions_dropped) == sorted(before - after)


def registered(stored: Collection[Trigger], what: Registration) -> set[Trigger]:
    """Return the stored triggers after a registration."""
    return (set(stored) - set(what.remove)) | set(what.add)
