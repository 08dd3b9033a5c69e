"""Laws of `tidegate.reactive.task.plan_queries`, over required looks, their writes, and pages."""

from __future__ import annotations

from tidegate.model.documents import in_order
from tidegate.reactive.record.tasks import Leave, PlanVerdict
from tidegate.reactive.task.plan_queries import PlanPage


def what_is_not_looked_at_is_left(verdict: PlanVerdict, *, must_look: bool) -> bool:
    """Law PQ1: a document that needs no look is one that a look would leave unchanged.

    Args:
        verdict: The write of a look.
        must_look: The store's answer.
    """
    return must_look or isinstance(verdict, Leave)


def no_more_is_looked_at(verdict: PlanVerdict, *, must_look: bool, can_tell: bool) -> bool:
    """Law PQ2: a look at a returned document would write.

    Args:
        verdict: The write of a look.
        must_look: The store's answer.
        can_tell: Whether the store knows all that a look reads.
    """
    return not must_look or not can_tell or not isinstance(verdict, Leave)


def is_for_all(pages: tuple[PlanPage, ...], page: PlanPage) -> bool:
    """Law PQ4: one page for several tasks has the documents of each, as far as all were queried.

    Args:
        pages: The page of each task, after one id; a task without a page has nothing left.
        page: The one for all.
    """
    if not any(each.after for each in pages):
        return page == PlanPage()
    end = min(in_order(each.after[0]) for each in pages if each.after)
    asked = {in_order(key) for each in pages for key in each.ids if in_order(key) <= end}
    return [in_order(key) for key in page.ids] == sorted(asked) and [in_order(key) for key in page.after] == [end]


def is_cut(page: PlanPage, count: int, first: PlanPage) -> bool:
    """Law PQ5: the rest of a cut page is queried again, and nothing before it.

    Args:
        page: The whole page.
        count: The most ids at once.
        first: The cut page.
    """
    if len(page.ids) <= count:
        return first == page
    rest = tuple(key for key in page.ids if in_order(key) > in_order(first.after[0]))
    return len(first.ids) == count and first.ids + rest == page.ids
