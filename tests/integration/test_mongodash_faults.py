"""The faults of mongodash (docs/weaknesses.md, by number), attempted on a real MongoDB."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
import pytest
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer
from tests.integration.test_reactive_app import AT_ONCE, Shop, served, shop_of, until
from tests.integration.test_reactive_planner import (
    RULES,
    Full,
    Told,
    is_planned,
    on_mongo,
    planning,
    site_of,
    task,
)

from tidegate.model.documents import Document, Eq, Field
from tidegate.model.instants import MILLISECOND
from tidegate.reactive.planning.deployments import Deployment
from tidegate.reactive.planning.reconciler import stored_progress
from tidegate.reactive.planning.reconciliation import Checkpoint, Progress
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.orphans import CleanUp
from tidegate.reactive.record.snapshot import Computed
from tidegate.reactive.record.tasks import WhyNot
from tidegate_adapters.mongo.bson import stored
from tidegate_adapters.reactive import Change, Later
from tidegate_adapters.reactive.names import KEY, LEASES, STREAMS
from tidegate_adapters.reactive.planner import Planner

Work = Callable[[Shop], Any]


def in_shop(uri: str, database: str, work: Work) -> None:
    async def run() -> None:
        async with shop_of("mongod", uri, database) as shop:
            await work(shop)

    in_loop(run())


async def the_record(shop: Shop) -> dict[str, Any]:
    (found,) = await shop.records()
    return found


def of(shop: Shop, collection: str) -> Any:
    assert shop.client is not None
    return shop.client[shop.name][collection]


# --- lost or skipped work ---------------------------------------------------------------------------------------------------


def test_2_changes_of_two_collections_under_one_id_are_two(mongodb: str, database: str) -> None:
    """In one transaction, so that one reply of the stream holds both."""

    async def work(client: Any) -> None:
        held = client[database]
        await held.orders.insert_one({"_id": 0})
        await held.customers.insert_one({"_id": 0})
        async with planning(site_of(client, database), [task("bill"), task("greet", "customers")]) as life:
            await life.settled("bill", "greet")
            async with client.start_session() as session, await session.start_transaction():
                for source in (held.orders, held.customers):
                    await source.insert_one({"_id": 1}, session=session)
            both = [(key, {"_id": key}) for key in (0, 1)]
            await until(lambda: is_planned(held, "bill", both), "of the one")
            await until(lambda: is_planned(held, "greet", both, "customers"), "of the other")

    on_mongo(mongodb, work)


def test_4_who_has_stalled_past_its_lease_ends_nothing(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        site = site_of(client, database)
        one = task("a", "orders", "n", debounce=Debounce(0, 0), lease=100 * MILLISECOND)
        await held.orders.insert_one({"_id": 1, "n": 1})
        await site.run(one.plan_pass((1,), "p1"))
        stalled, _ = await site.run(one.fetcher.take("stalled", 1))
        await asyncio.sleep(0.15)
        took, _ = await site.run(one.fetcher.take("other", 1))
        answers = await site.run(one.completer.end(((stalled[0], None),)))
        assert isinstance(answers[0], WhyNot)
        assert (await held.orders_tasks.find_one({}))["owner"] == "other"
        await site.run(one.completer.end(((took[0], None),)))
        await held.orders.update_one({"_id": 1}, {"$set": {"n": 2}})
        await site.run(one.plan_pass((1,), "p2"))
        answers = await site.run(one.completer.end(((stalled[0], None),)))
        assert isinstance(answers[0], WhyNot)
        assert (await held.orders_tasks.find_one({}))["status"] == "pending"

    on_mongo(mongodb, work)


def test_8_who_has_a_filter_hears_of_deletions(mongodb: str, database: str) -> None:
    """Deletion events carry no document to match."""

    async def work(client: Any) -> None:
        held = client[database]
        paid = attrs.evolve(task("a"), where=Eq(Field[Any]("paid"), True), cleaning=CleanUp(keep_for=0))
        rules = attrs.evolve(RULES, sweep=timedelta(milliseconds=50))
        async with planning(site_of(client, database), [paid], rules) as life:
            await life.settled("a")
            await held.orders.insert_many([{"_id": key, "paid": True} for key in range(3)])
            await until(lambda: is_planned(held, "a", [(key, {"_id": key, "paid": True}) for key in range(3)]), "all")
            await held.orders.delete_many({"_id": {"$lt": 2}})
            await until(lambda: is_planned(held, "a", [(2, {"_id": 2, "paid": True})]), "two are gone")

    on_mongo(mongodb, work)


def test_6_what_begins_with_a_dollar_is_data(mongodb: str, database: str) -> None:
    odd: list[dict[str, Any]] = [
        {"_id": 1, "v": "$5"},
        {"_id": 2, "v": "$$NOPE"},
        {"_id": 3, "v": {"a.b": 1, "$c": 2}},
        {"_id": 4, "v": {"10": 1, "9": 2}},
        {"_id": "$v", "v": "$$NOW"},
    ]

    async def work(shop: Shop) -> None:
        app, seen = shop.app(), dict[Any, Any]()

        @app.task("orders", watch=["v"], debounce=AT_ONCE)
        async def invoice(change: Change) -> None:
            assert change.id not in seen
            seen[change.id] = change.values["v"]

        await shop.insert(*odd[:2])
        async with served(app):
            await shop.insert(*odd[2:])
            await until(lambda: len(seen) == len(odd), "all are handled")
            await until(lambda: all_are(shop, "completed"), "and completed")
        assert seen == {each["_id"]: each["v"] for each in odd}
        assert [*seen[4]] == ["10", "9"]

    in_shop(mongodb, database, work)


async def all_are(shop: Shop, status: str) -> bool:
    return all(each["status"] == status for each in await shop.records())


def test_7_a_date_in_a_filter_is_that_date_where_documents_change(mongodb: str, database: str) -> None:
    async def work(shop: Shop) -> None:
        app, seen = shop.app(), list[Any]()
        limit = datetime(2020, 1, 1, tzinfo=UTC)

        @app.task("orders", where={"created": {"$lt": limit}}, debounce=AT_ONCE)
        async def invoice(change: Change) -> None:
            seen.append(change.id)

        async with served(app):
            await shop.insert({"_id": 1, "created": limit + timedelta(1)}, {"_id": 2, "created": limit - timedelta(1)})
            await until(lambda: seen == [2], "the older one is handled")

    in_shop(mongodb, database, work)


def test_10_what_an_interrupted_pass_has_noted_goes_with_the_history(mongod: MongoServer, database: str) -> None:
    """A checkpoint is valid only while the history lasts."""
    noted = Deployment(task("a")).scanned.trigger

    async def work(client: Any) -> None:
        held = client[database]
        await held.orders.insert_many([{"_id": key} for key in range(9)])
        every = [(key, {"_id": key}) for key in range(9)]
        async with planning(site_of(client, database), [task("a")]) as life:
            await life.settled("a")
        half = Progress(0, frozenset(), (Checkpoint("orders", frozenset({noted}), 4),))
        put = stored_progress(half)
        await held[STREAMS].update_one({"_id": KEY}, {"$set": {put.field.name: stored(put.value)}})
        await held.orders_tasks.delete_many({})
        async with planning(site_of(client, database), [task("a")]) as life:
            await life.settled("a")
            assert await is_planned(held, "a", every[5:])
            with mongod.fail("getMore", times=1, errorCode=286):
                await until(lambda: life.planner.standing.history == 1, "it is lost")
            await until(lambda: is_planned(held, "a", every), "all are looked at")

    on_mongo(mongod.uri, work)


def test_11_no_position_is_saved_before_what_lies_before_it(mongod: MongoServer, database: str) -> None:
    """One record cannot be inserted, another document changes, and then the leader dies."""

    async def work(client: Any) -> None:
        held = client[database]
        await held.orders.insert_one({"_id": 0, "n": 0})
        async with await connect(mongod, "striker") as other:
            planner = Planner(site_of(other, database), [Told(task("a"))], RULES, Full(), "dies")
            running = asyncio.create_task(planner.run())
            await until(lambda: planner.standing.reached is not None and "a" in planner.standing.reconciled, "it leads")
            await until(lambda: is_planned(held, "a", [(0, {"_id": 0, "n": 0})]), "one is there")
            with mongod.fail("insert", errorCode=112, appName="striker"):
                await held.orders.insert_one({"_id": 1, "n": 0})
                await held.orders.update_one({"_id": 0}, {"$set": {"n": 1}})
                await until(lambda: planner.standing.error is not None, "a look at them fails")
                await until(
                    lambda: planner.standing.under_way > 0, "one waits for its own, and the other may not be read"
                )
                running.cancel()
                await asyncio.wait({running})
        async with planning(site_of(client, database), [task("a")]):
            both = [(0, {"_id": 0, "n": 1}), (1, {"_id": 1, "n": 0})]
            await until(lambda: is_planned(held, "a", both), "nothing is lost")

    on_mongo(mongod.uri, work)


def test_what_changes_while_it_runs_is_not_put_off_by_later(mongodb: str, database: str) -> None:
    async def work(shop: Shop) -> None:
        app, runs = shop.app(), list[int]()

        @app.task("orders", watch=["n"], debounce=AT_ONCE)
        async def invoice(change: Change) -> None:
            runs.append(change.values["n"])
            if change.values["n"]:
                return
            await shop.put(1, "n", 1)
            await until(lambda: is_dirty(shop), "the change had its look")
            raise Later(timedelta(hours=1))

        async with served(app):
            await shop.insert({"_id": 1, "n": 0})
            await until(lambda: runs == [0, 1], "the change is handled")

    in_shop(mongodb, database, work)


async def is_dirty(shop: Shop) -> bool:
    return [each["status"] for each in await shop.records()] == ["processing_dirty"]


def test_names_and_ids_that_read_alike_are_told_apart(mongodb: str, database: str) -> None:
    async def work(shop: Shop) -> None:
        app, runs = shop.app(), list[tuple[str, Any]]()

        async def handle(change: Change) -> None:
            runs.append((change.task, change.id))

        for name in ("a/b", "a", "a.b", "$a"):
            _ = app.task("orders", debounce=AT_ONCE, name=name)(handle)
        async with served(app):
            await shop.insert({"_id": "c"}, {"_id": "b/c"}, {"_id": 1}, {"_id": "1"})
            await until(lambda: len(runs) == 16, "each task handles each")
        assert len({*runs}) == 16

    in_shop(mongodb, database, work)


async def connect(mongod: MongoServer, name: str) -> Any:
    from tidegate_adapters.mongo import connect_async

    return await connect_async(f"{mongod.uri}&appName={name}&retryWrites=false")


@pytest.mark.parametrize("skip", range(3))
def test_13_a_new_trigger_is_not_forgotten_by_a_crash(mongod: MongoServer, database: str, skip: int) -> None:
    """After any of the writes at the start of leading."""

    async def work(client: Any) -> None:
        held = client[database]
        await held.orders.insert_many([{"_id": key, "n": 1, "m": 2} for key in range(3)])
        async with planning(site_of(client, database), [task("a", "orders", "n")]) as life:
            await life.settled("a")
        wider = task("a", "orders", "n", "m")
        async with await connect(mongod, "striker") as other:
            planner = Planner(site_of(other, database), [Told(wider)], RULES, Full(), "dies")
            commands = ("findAndModify", "update", "find")[skip]
            with mongod.fail(commands, errorCode=91, appName="striker"):
                running = asyncio.create_task(planner.run())
                await asyncio.sleep(0.3)
                running.cancel()
                await asyncio.wait({running})
        async with planning(site_of(client, database), [wider]):
            expected = [(key, {"m": 2, "n": 1}) for key in range(3)]
            await until(lambda: is_planned(held, "a", expected), "all are looked at")

    on_mongo(mongod.uri, work)


# --- repeated or stuck work --------------------------------------------------------------------------------------------------


def test_14_a_handler_that_goes_on_after_its_end_is_called_once(mongodb: str, database: str) -> None:
    async def work(shop: Shop) -> None:
        app, calls, ended = shop.app(), list[Any](), asyncio.Event()

        @app.task("orders", debounce=AT_ONCE, lease=timedelta(seconds=1))
        async def invoice(change: Change) -> None:
            calls.append(change.id)
            await change.complete()
            try:
                await asyncio.sleep(2.5)
                raise ValueError("too late")
            finally:
                ended.set()

        async with served(app):
            await shop.insert({"_id": 1})
            await ended.wait()
            await shop.insert({"_id": 2})
            await until(lambda: 2 in calls, "others are handled")
        found = {each["document"]: each for each in await shop.records()}
        assert calls.count(1) == 1
        assert (found[1]["status"], found[1].get("next_run_at"), found[1].get("last_error")) == (
            "completed",
            None,
            None,
        )

    in_shop(mongodb, database, work)


def test_15_the_text_of_an_error_is_text(mongodb: str, database: str) -> None:
    texts = ("$foo bar", "$$x is no variable", "$", "$$ROOT", "{$literal: 1}")

    async def work(shop: Shop) -> None:
        app = shop.app()

        @app.task("orders", debounce=AT_ONCE, retries=1, backoff=AT_ONCE)
        async def invoice(change: Change) -> None:
            raise ValueError(texts[change.id])

        async with served(app):
            await shop.insert(*({"_id": key} for key in range(len(texts))))
            await until(lambda: has_failed(shop, len(texts)), "all are given up")
        found = {each["document"]: (each["last_error"], each["attempts"]) for each in await shop.records()}
        assert found == {key: (f"ValueError: {text}", 2) for key, text in enumerate(texts)}

    in_shop(mongodb, database, work)


async def has_failed(shop: Shop, count: int) -> bool:
    return len([each for each in await shop.records() if each["status"] == "failed"]) == count


KILLER: Final = """
    import os, sys
    from datetime import timedelta
    from tidegate.leases.lease import Terms
    from tidegate.model.instants import MILLISECOND, SECOND
    from tidegate.retries.polling import PollingBounds
    from tidegate_adapters.reactive import Reactive
    from tidegate_adapters.reactive.planner import PlannerRules
    from tidegate_adapters.reactive.settings import ReactiveSettings

    terms = Terms(ttl=SECOND, heartbeat=200 * MILLISECOND, margin=100 * MILLISECOND)
    polling = PollingBounds(least=20 * MILLISECOND, most=200 * MILLISECOND, jitter=0)
    settings = ReactiveSettings(database=sys.argv[2], polling=polling, planner=PlannerRules(terms=terms))
    app = Reactive(sys.argv[1], settings=settings)

    @app.task("orders", debounce=timedelta(0), retries=1, backoff=timedelta(0), lease=timedelta(milliseconds=300))
    async def invoice(change):
        if change.id == "deadly":
            os._exit(9)
        app.stop()

    app.run()
"""


def test_16_a_handler_that_kills_its_process_is_given_up(mongodb: str, database: str) -> None:
    """Each process death is one attempt; the third process handles the rest."""

    async def work(shop: Shop) -> None:
        await shop.insert({"_id": "deadly"})

        async def lived() -> int:
            code = textwrap.dedent(KILLER)
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, mongodb, database)
            async with asyncio.timeout(30):
                return await process.wait()

        assert [await lived(), await lived()] == [9, 9]
        third = asyncio.create_task(lived())
        await until(lambda: has_failed(shop, 1), "it is given up")
        await shop.insert({"_id": "harmless"})
        assert await third == 0
        found = {each["document"]: each for each in await shop.records()}
        assert found["deadly"]["attempts"] == 2
        assert found["deadly"]["token"] >= 2  # a slow machine may lose a lease before the handler starts

    in_shop(mongodb, database, work)


@pytest.mark.parametrize("resets", [True, False])
def test_18_who_edits_its_own_document_and_fails_is_given_up(mongodb: str, database: str, *, resets: bool) -> None:
    """By default after its edits stop, since each edit is a change with its own attempts."""
    edits, retries = 4, 2

    async def work(shop: Shop) -> None:
        app, runs = shop.app(), list[int]()

        @app.task("orders", watch=["n"], debounce=AT_ONCE, retries=retries, backoff=AT_ONCE, resets_on_change=resets)
        async def invoice(change: Change) -> None:
            runs.append(change.values["n"])
            if change.values["n"] < edits:
                await shop.put(change.id, "n", change.values["n"] + 1)
            raise ValueError("as always")

        async with served(app):
            await shop.insert({"_id": 1, "n": 0})
            await until(lambda: has_failed(shop, 1), "it is given up")
        if resets:
            assert ({*runs}, runs.count(edits)) == ({*range(edits + 1)}, retries + 1)
            assert len(runs) <= (edits + 1) * (retries + 1)
        else:
            assert runs == [*range(len(runs))]
            assert retries + 1 <= len(runs) <= edits + 1

    in_shop(mongodb, database, work)


def test_19_ceaseless_changes_do_not_starve_a_task(mongodb: str, database: str) -> None:
    async def work(shop: Shop) -> None:
        app, runs = shop.app(), list[Any]()
        debounce = Debounce(300 * MILLISECOND, 600 * MILLISECOND)

        @app.task("orders", watch=["n"], debounce=debounce)
        async def invoice(change: Change) -> None:
            runs.append(change.values["n"])

        async with served(app):
            await shop.insert({"_id": 1, "n": 0})
            number = 0

            async def still_waits() -> bool:
                nonlocal number
                number += 1
                await shop.put(1, "n", number)
                return bool(runs)

            await until(still_waits, "it runs while it changes")

    in_shop(mongodb, database, work)


def test_21_what_cannot_be_computed_for_one_document_holds_up_no_other(mongodb: str, database: str) -> None:
    def counted(doc: Document) -> int:
        items = doc[Field[Any]("items")]
        assert isinstance(items, tuple)
        return len(items)

    async def work(shop: Shop) -> None:
        app, seen = shop.app(), dict[Any, Any]()
        watch = {"count": Computed(counted, {"$size": "$items"})}

        @app.task("orders", watch=watch, debounce=AT_ONCE)
        async def invoice(change: Change) -> None:
            seen[change.id] = change.values["count"]

        await shop.insert({"_id": 1, "items": [1]}, {"_id": 2}, {"_id": 3, "items": [1, 2]})
        async with served(app):
            await until(lambda: seen == {1: 1, 3: 2}, "what was there before")
            await shop.insert({"_id": 4, "items": []}, {"_id": 5, "items": 7}, {"_id": 6, "items": [0]})
            await until(lambda: seen == {1: 1, 3: 2, 4: 0, 6: 1}, "what comes")
            await of(shop, "orders").update_one({"_id": 2}, {"$set": {"items": [1, 2, 3]}})
            await until(lambda: seen.get(2) == 3, "what can be computed by then")

    in_shop(mongodb, database, work)


# --- leadership --------------------------------------------------------------------------------------------------------------

SKEWED: Final = """
    import sys, time
    ahead = float(sys.argv[3])
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + ahead
    time.time_ns = lambda: real_ns() + int(ahead * 1e9)

    from datetime import timedelta
    from tidegate.retries.polling import PollingBounds
    from tidegate.model.instants import MILLISECOND
    from tidegate_adapters.reactive import Change, Later, Reactive
    from tidegate_adapters.reactive.settings import ReactiveSettings

    polling = PollingBounds(least=20 * MILLISECOND, most=100 * MILLISECOND, jitter=0)
    app = Reactive(sys.argv[1], settings=ReactiveSettings(database=sys.argv[2], polling=polling))

    @app.task("orders", debounce=timedelta(0))
    async def invoice(change):
        print("handled", change.id, flush=True)

    app.run()
"""


def test_22_a_look_at_all_that_takes_longer_than_the_lease_keeps_it(mongod: MongoServer, database: str) -> None:
    async def work(client: Any) -> None:
        await client[database].orders.insert_many([{"_id": key} for key in range(2)])
        rules = attrs.evolve(RULES, batch=1)
        async with await connect(mongod, database) as slow:
            with mongod.fail("aggregate", blockConnection=True, blockTimeMS=400, appName=database):
                async with planning(site_of(slow, database), [task("a")], rules) as first:
                    await until(lambda: first.planner.standing.leads, "one leads")
                    began = time.monotonic()
                    async with planning(site_of(client, database), [task("a")], rules) as second:
                        while not first.planner.standing.reconciled:
                            assert first.planner.standing.leads
                            assert not second.planner.standing.leads
                            await asyncio.sleep(0.01)
                        assert time.monotonic() - began > RULES.terms.ttl / 1_000_000
                        assert first.planner.standing.epoch == 1

    on_mongo(mongod.uri, work)


@pytest.mark.parametrize("ahead_s", [3_600, -3_600])
def test_23_whose_clock_is_wrong_takes_nothing_from_others(mongodb: str, database: str, ahead_s: int) -> None:
    async def work(shop: Shop) -> None:
        app, runs, may_end = shop.app(), list[Any](), asyncio.Event()

        @app.task("orders", debounce=AT_ONCE)
        async def invoice(change: Change) -> None:
            runs.append(change.id)
            await may_end.wait()

        async with served(app):
            epoch = app.planners[0].standing.epoch
            await shop.insert({"_id": 1})
            await until(lambda: runs == [1], "one runs here")
            code = textwrap.dedent(SKEWED)
            other = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, mongodb, database, str(ahead_s), stdout=asyncio.subprocess.PIPE
            )
            assert other.stdout is not None
            try:
                for key in range(2, 30):  # more than this process has capacity for
                    await shop.insert({"_id": key})
                said = (await asyncio.wait_for(other.stdout.readline(), 20)).decode()
            finally:
                other.terminate()
                rest = (await other.communicate())[0].decode()
            handled = [int(line.split()[1]) for line in (said + rest).splitlines()]
            assert handled
            assert not {*handled} & {*runs}, "a run that is under way was taken"
            standing = app.planners[0].standing
            assert (standing.leads, standing.epoch) == (True, epoch)
            may_end.set()

    in_shop(mongodb, database, work)


def test_24_of_two_instances_of_one_name_one_leads_and_a_stop_ends_an_election(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        leases = client[database][LEASES]
        async with planning(site_of(client, database), [task("a")]) as first:
            await until(lambda: first.planner.standing.leads, "one leads")
            async with planning(site_of(client, database), [task("a")]) as second:
                await asyncio.sleep(RULES.terms.heartbeat * 2 / 1_000_000)
                assert not second.planner.standing.leads
        assert (await leases.find_one({"_id": KEY})).get("holder") is None
        for _ in range(5):
            planner = Planner(site_of(client, database), [Told(task("a"))], RULES, Full(), "tests")
            running = asyncio.create_task(planner.run())
            await asyncio.sleep(0.01)
            planner.stop()
            await running
            assert (await leases.find_one({"_id": KEY}) or {}).get("holder") is None

    on_mongo(mongodb, work)
