"""The laws of `tidegate.triggers.trigger` as predicates over what it decides."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegate.model.documents import Document
from tidegate.triggers.conditions import CannotTell, ConditionVerdict, Holds
from tidegate.triggers.contexts import context_id
from tidegate.triggers.trigger import Noticed, NotProvided, Occurrence, Provided, Registration, Trigger


def triggers_are_named_by_all(left: Trigger, right: Trigger) -> bool:
    """Law TG1: triggers have the same id exactly if they are equal, functions going by name."""
    return (left == right) is (left.id == right.id)


def occurrences_are_named_by_both(left: Occurrence, right: Occurrence) -> bool:
    """Law TG1: occurrences have the same id exactly if they are of one condition and happening, whenever seen."""
    happening = [(each.condition_id, context_id(each.context)) for each in (left, right)]
    return (happening[0] == happening[1]) is (left.id == right.id)


def all_that_holds_is_noticed(answers: Mapping[str, ConditionVerdict], noticed: Noticed) -> bool:
    """Law TG2: what is noticed is one occurrence for each condition that holds, and all that cannot be decided.

    Args:
        answers: Whether each condition holds, by its id.
        noticed: What came of it.
    """
    held = [name for name, answer in answers.items() if isinstance(answer, Holds)]
    unknown = [(name, answer.reason) for name, answer in answers.items() if isinstance(answer, CannotTell)]
    return [each.condition_id for each in noticed.occurrences] == held and list(noticed.unknown) == unknown


def the_first_decides(parts: Sequence[Provided | NotProvided], whole: Provided | NotProvided) -> bool:
    """Law TG3: the first of several providers that has arguments decides; without any, the answer has all reasons."""
    first = next((part for part in parts if isinstance(part, Provided)), None)
    reasons = tuple(reason for part in parts if isinstance(part, NotProvided) for reason in part.reasons)
    return whole == (first or NotProvided(reasons))


def provides_a_document_or_reasons(said: Document | None, answer: Provided | NotProvided) -> bool:
    """Law TG4: whatever the user's code does, a provider has an answer: its document, or the reason why there is none.

    Args:
        said: The document that the user's code answered, or that its dict stands for; None where it did neither.
        answer: What came of it.
    """
    if said is not None:
        return answer == Provided(said)
    return isinstance(answer, NotProvided) and len(answer.reasons) == 1


def registers_what_is_wanted(
    stored: Collection[Trigger], task: str, wanted: Collection[Trigger], what: Registration, again: Registration
) -> bool:
    """Law TG5: the task has the triggers that were wanted, nothing else is touched, and done again it changes nothing."""
    after = registered(stored, what)
    others = {each for each in stored if each.task != task}
    touched = {*what.add, *what.remove}
    return (
        after == others | set(wanted) and touched.isdisjoint(set(stored) & after) and again == Registration((), (), ())
    )


def drops_what_nobody_waits_for(stored: Collection[Trigger], what: Registration) -> bool:
    """Law TG6: a condition is dropped with the last trigger that waits for it, and not before."""
    before, after = (
        {name for each in some for name in each.condition_ids} for some in (stored, registered(stored, what))
    )
    return list(what.conditions_dropped) == sorted(before - after)


def registered(stored: Collection[Trigger], what: Registration) -> set[Trigger]:
    """The triggers that are stored once a registration is carried out."""
    return (set(stored) - set(what.remove)) | set(what.add)
