"""Write a program of your own, and let the simulator look for the interleaving that breaks it.

A coupon may be used once. The first program looks, then writes; the second asks and writes in one command.
Explore both from the shell:

    tidegate explore examples/explore_your_own.py:careless
    tidegate explore examples/explore_your_own.py:careful
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Put
from tidegate.model.effects import Program
from tidegate.model.operations import find_one, find_one_and_update
from tidegate.sim import Process, Returned, Scenario, State, explore, factory, render, world_with

COUPON = Eq(ID, "coupon")
USED_BY = Field[str | None]("used_by")


async def look_then_write(customer: str) -> bool:
    """Use the coupon if nobody has. The bug is between the two awaits."""
    coupon = await find_one("coupons", COUPON)
    if coupon is None or coupon[USED_BY] is not None:
        return False
    await find_one_and_update("coupons", COUPON, Put(USED_BY, customer))
    return True


async def ask_and_write(customer: str) -> bool:
    """Use the coupon if nobody has, in one atomic command."""
    unused = AllOf((COUPON, Eq(USED_BY, None)))
    return await find_one_and_update("coupons", unused, Put(USED_BY, customer)) is not None


def used_at_most_once(state: State) -> bool:
    """Law: at most one customer learns that the coupon is theirs."""
    return sum(state.status(customer) == Returned(value=True) for customer in ("ann", "bob")) <= 1


def scenario(name: str, use: Callable[[str], Program[object]]) -> Scenario:
    """Ann and Bob use the same coupon."""
    return Scenario(
        name=name,
        summary="a coupon is used at most once",
        world=world_with({"coupons": (Document.of({"_id": "coupon", "used_by": None}),)}),
        actors=tuple(Process(customer, factory(use, customer)) for customer in ("ann", "bob")),
        always={"the coupon is used at most once": used_at_most_once},
    )


def careless() -> Scenario:
    """The program that looks first."""
    return scenario("careless", look_then_write)


def careful() -> Scenario:
    """The program that does not."""
    return scenario("careful", ask_and_write)


if __name__ == "__main__":
    for each in (careless(), careful()):
        report = explore(each)
        print(f"{each.name}: {report.verdict.value}, {report.states} states")
        if report.trace is not None:
            print(render(report.trace))
