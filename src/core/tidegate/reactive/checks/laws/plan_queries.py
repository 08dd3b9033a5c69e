"""Laws of `tidegate.reactive.task.plan_queries`, over what is to be looked at, what a look would write, and pages."""

from __future__ import annotations

from tidegate.model.documents import in_order
from tidegate.reactive.record.tasks import Leave, PlanVerdict
from tidegate.reactive.task.plan_queries import PlanPage


def what_is_not_looked_at_is_left(verdict: PlanVerdict, *, must_look: bool) -> bool:
    """Law PQ1: what need not be looked at is what a look would leave as it is.

    Args:
        verdict: What a look would write.
        must_look: What the store says.
    """
    return must_look or isinstance(verdict, Leave)


def no_more_is_looked_at(verdict: PlanVerdict, *, must_look: bool, can_tell: bool) -> bool:
    """Law PQ2: what is to be looked at is what a look would write about.

    Args:
        verdict: What a look would write.
        must_look: What the store says.
        can_tell: The store knows all that a look knows.
    """
    return not must_look or not can_tell or not isinstance(verdict, Leave)


def is_for_all(pages: tuple[PlanPage, ...], page: PlanPage) -> bool:
    """Law PQ4: one page for several tasks is what one of them has to look at, as far as all of them were asked.

    Args:
        pages: What each was told, after one id; what was told nothing has nothing left.
        page: The one for all.
    """
    if not any(each.after for each in pages):
        return page == PlanPage()
    end = min(in_order(each.after[0]) for each in pages if each.after)
    asked = {in_order(key) for each in pages for key in each.ids if in_order(key) <= end}
    return [in_order(key) for key in page.ids] == sorted(asked) and [in_order(key) for key in page.after] == [end]


def is_cut(page: PlanPage, count: int, first: PlanPage) -> bool:
    """Law PQ5: of a page that is cut the rest is asked for again, and nothing of what is before it.

    Args:
        page: The whole.
        count: How many ids of it there may be at once.
        first: What is left of it.
    """
    if len(page.ids) <= count:
        return first == page
    rest = tuple(key for key in page.ids if in_order(key) > in_order(first.after[0]))
    return len(first.ids) == count and first.ids + rest == page.ids
