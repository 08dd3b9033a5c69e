"""Random small scenarios and their simulator versions, for comparison of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache
from random import Random  # noqa: TID251  seeded
from typing import Any, TypeAlias, cast

from tests.properties.independent.programs import (
    ANSWERED_BY,
    After,
    Ask,
    At,
    Break,
    Broken,
    Const,
    Do,
    Doc,
    DocumentChange,
    Finally,
    From,
    If,
    Life,
    Me,
    Page,
    Picked,
    Program,
    Raise,
    Repeat,
    Reraise,
    Return,
    Session,
    Set,
    Statement,
    Term,
    Truth,
    Try,
    Var,
    While,
    position_of,
    request,
    source,
)
from tests.properties.independent.search import (
    NO_ERROR,
    QUANTUM,
    Actor,
    Fact,
    Found,
    Host,
    Law,
    Little,
    Seen,
    Stream,
    TooLargeError,
    is_fact,
    same_in_both_times,
    search,
    typed,
)

from tidegate.model import documents, effects, operations, transactions
from tidegate.model.documents import Document
from tidegate.model.effects import Call, Effect
from tidegate.model.instants import STORE, WALL, Instant
from tidegate.reactive.planning import change_stream
from tidegate.sim import (
    Asking,
    Clock,
    Crashed,
    Exploration,
    Failed,
    Fault,
    Faults,
    Network,
    Process,
    Raised,
    Reductions,
    Report,
    Reproduced,
    Returned,
    Scenario,
    State,
    Verdict,
    all_effects,
    calling,
    contents,
    document,
    explore,
    notes,
    perform,
    replay,
    world_with,
)
from tidegate.sim.program.relative_time import RelativeInstant, aged, plain
from tidegate.sim.servers import streams
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.servers.failover import Failover, recalling
from tidegate.sim.world import clocks
from tidegate.sim.world.world import CLOCK, Cell

IDS = ("x", "y")
NAMES = ("p", "q", "r")
FAULTS = (
    "crash_before", "crash_after", "restart", "unsent", "dropped", "lost_reply", "late", "duplicate", "cancelled",
)  # fmt: skip
OF_CLOCKS = ("skew", "clock_forward", "clock_back", "stall")
OF_FAILOVER = ("not_durable", "not_durable", "rolled_back", "stale_read")
OF_MANY = ("partly_done", "partly_done", "late")
STATES_MIN, STATES_MAX = 25, 1_000
EXPLORED_MAX = 20_000
"""No drawn scenario has this many states; a planted fault may give it more."""
SLEEPY = 0.15
"""The share of scenarios whose programs end with a sleep that no clock can show."""
RETURNING = 0.2
"""Each interchangeable process first deletes, then inserts a document of its name."""
LOOKING = 0.4
UPSERTING = 0.08
"""A process finds all documents after writes to two, for stale reads."""
REFUSED = 0.1
"""Each process first inserts the same document, if the store may roll back writes."""
MOVES = 3
"""The comparison of relative and absolute time ends after this many clock moves."""


# --- drawn --------------------------------------------------------------------------------------------------------------


class Draw:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.one_of: Callable[[Any], Any] = random.choice
        self.is_timed = random.random() < 0.35
        self.is_relative = self.is_timed and random.random() < 0.6
        self.horizon = random.choice((1, 2))
        self.is_symmetric = random.random() < 0.25
        self.calls = not self.is_symmetric and random.random() < 0.2
        self.raises = random.random() < 0.05
        features = self.one_of(
            ("", "", "clocks", "clocks", "failover", "failover", "stream", "failover stream", "failover stream", "transactions",
             "transactions", "many", "many failover stream", "many transactions")
        )  # fmt: skip
        self.has_clocks = "clocks" in features and not self.is_relative
        self.fails_over, self.streams = "failover" in features, "stream" in features
        self.transacts, self.writes_many = "transactions" in features, "many" in features
        self.hosts: dict[str, Host] = {}

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def little(self) -> Little:
        budget = self.one_of((1, 2, 3, 3) if self.fails_over else (0, 1, 1, 2, 2, 3))
        count = self.one_of((1, 2, 2, 2, 3) if budget < 2 else (1, 1, 2, 2))
        if self.is_symmetric:
            count = max(2, count)
        names = NAMES[:count]
        is_special = self.has_clocks or self.fails_over or self.streams or self.transacts
        faults = frozenset(kind for kind in FAULTS if self.chance(0.2 if is_special else 0.4))
        faults |= {kind for kind in ("failed", "never_returns") if self.calls and self.chance(0.7)}
        faults |= {kind for kind in OF_CLOCKS if self.has_clocks and self.chance(0.5)}
        faults |= {kind for kind in OF_FAILOVER if self.fails_over and self.chance(0.7)}
        faults |= {kind for kind in OF_MANY if self.writes_many and self.chance(0.7)}
        expires = self.transacts and self.chance(0.6)
        faults |= {kind for kind in ("stall", "not_durable", "lost_reply") if self.transacts and self.chance(0.4)}
        on_writes = self.chance(0.2)
        host, comes_back = self.host() if self.has_clocks else Host(), "restart" not in faults and self.chance(0.1)
        symmetric = names if self.is_symmetric else ()
        if self.is_symmetric and count > 2 and self.chance(0.5):
            symmetric = names[:2]
        common = self.program()

        def actor(name: str) -> Actor:
            if name in symmetric:
                return Actor(name, common, faults, on_writes, host, comes_back)
            own = self.one_of((faults, faults, faults - {"rolled_back"}, frozenset()))
            machine = host if self.chance(0.5) or not self.has_clocks else self.host()
            return Actor(name, self.program(), own, on_writes, machine, comes_back)

        actors = tuple(map(actor, names))
        if self.streams and self.chance(0.5):
            faults |= {"history_lost"}
        kinds = sorted(faults)
        bounded = self.random.sample(kinds, min(len(kinds), self.one_of((0, 0, 1, 2))))
        clock = None
        if self.is_timed:
            clock = (self.horizon * QUANTUM if self.is_relative else None, self.one_of((1, 2, 3)))
        return Little(
            docs=tuple(self.doc(id_) for id_ in IDS[: self.one_of((1, 2, 2))]),
            actors=actors,
            budget=budget,
            budgets=tuple((kind, self.one_of((0, 1, 1, 2))) for kind in sorted(bounded)),
            unique="o" if not self.transacts and self.chance(0.1) else "",
            network=self.chance(0.8),
            clock=clock,
            answers=(1, "b")[: self.one_of((1, 2))],
            symmetric=symmetric,
            failover=self.fails_over,
            stream=self.stream(),
            history_lost="history_lost" in faults,
            expiry=expires,
            chosen=tuple(kind for kind in kinds if self.chance(0.7)) if self.chance(0.1) else None,
            faults_max=self.one_of((0, 1, 2)) if self.chance(0.1) else None,
        )

    def with_laws(self, little: Little, found: Found) -> Little:
        names = tuple(actor.name for actor in little.actors)
        changes = list(found.changes)

        def law() -> Law:
            count = self.one_of((1, 2, 2, 3))
            if self.chance(0.3):
                return Law(tuple(self.fact(names) for _ in range(count)))
            look = found.looks[-1 - int(len(found.looks) * self.random.random() ** 2)]
            facts = tuple(self.new_fact_of(look, found.looks[0]) for _ in range(count))
            return (
                Law(tuple(each._replace(denied=True) for each in facts), at_least=True)
                if self.chance(0.4)
                else Law(facts)
            )

        def step_law() -> Law:
            if not changes or self.chance(0.2):
                return Law((self.fact(names),), (self.fact(names),))
            before, after = self.one_of(changes)
            return Law((self.fact_of(before),), tuple(self.fact_of(after) for _ in range(self.one_of((1, 2)))))

        return little._replace(
            # Two laws of one name are one law in parts.
            always=tuple((self.one_of(("always 1", "always 2")), law()) for _ in range(self.one_of((0, 0, 1, 2)))),
            step=(("step 1", step_law()), ("step 2", step_law()))[: self.one_of((0, 0, 1, 2))],
            eventually=(("eventually 1", law()), ("eventually 2", law()))[: self.one_of((0, 1, 1, 2))],
            sometimes=tuple((f"sometimes {number}", law()) for number in range(self.one_of((0, 1, 3)))),
        )

    def new_fact_of(self, look: Seen, first: Seen) -> Fact:
        facts = [self.fact_of(look) for _ in range(4)]
        return next((fact for fact in facts if not is_fact(fact, first)), facts[0])

    def fact_of(self, look: Seen) -> Fact:
        docs, stands, notes, now = look
        ages, known = list[Fact](), list[Fact]()
        for _, fields in docs:
            id_ = dict(fields)["_id"][1]
            for name, value in fields:
                if value[0] == "at":
                    ages.append(Fact("age", id_, name, now - value[1]))
                elif name != "_id" and is_scalar(value):
                    known.append(Fact("doc", id_, name, value[1]))
        noted = [Fact("note", who, name, value[1]) for who, each in notes for name, value in each if is_scalar(value)]
        for facts, share in ((ages, 0.3), (known, 0.4), (noted, 0.3)):
            if facts and self.chance(share):
                return self.one_of(facts)  # type: ignore[no-any-return]
        who, how, what = self.one_of(stands)
        if how == "returned" and not is_scalar(what):
            return Fact("stands", who, "asks", None, denied=True)
        return Fact("stands", who, how, what[1] if how == "returned" else None)

    def host(self) -> Host:
        name = "" if self.is_symmetric or self.chance(0.5) else self.one_of("hhp")
        skew, jump = self.one_of((0, 1, 2)) * QUANTUM, self.one_of((0, 1, 2)) * QUANTUM
        host = Host(name, skew, jump, self.one_of((0, 0, 100_000, -100_000)), self.one_of((0, 1, 3)) * QUANTUM)
        return self.hosts.setdefault(name, host) if name else host

    def stream(self) -> Stream | None:
        if not self.streams:
            return None
        return Stream(self.one_of((1, 1, 2, 5)), self.one_of((0, 0, 1)), self.chance(0.9))

    def doc(self, id_: str) -> Doc:
        fields = [("_id", id_), ("v", 0), ("o", None), ("l", ())]
        return Doc(tuple(field for field in fields if field[0] == "_id" or self.chance(0.8)))

    def fact(self, names: tuple[str, ...]) -> Fact:
        who, denied = self.one_of(names), self.chance(0.15)
        match self.random.randrange(6 if self.is_timed else 5):
            case 5:
                return Fact("age", self.one_of(IDS), "t", self.one_of(range(self.horizon + 1)) * QUANTUM, denied)
            case 0:
                return Fact("doc", self.one_of(IDS), "v", self.one_of((0, 1, 2)), denied)
            case 1:
                return Fact("doc", self.one_of(IDS), "o", self.one_of((None, *names)), denied)
            case 2:
                return Fact("note", who, self.one_of("mn"), self.one_of((0, 1, None, *names)), denied)
            case 3:
                return Fact("stands", who, "returned", self.one_of((None, 0, 1, "lost", *names)), denied)
            case _:
                return Fact("stands", who, self.one_of(("crashed", "cancelled", "failed", "asks")), None, denied)

    def program(self) -> Program:
        if self.transacts and self.chance(0.7):
            return self.transaction()
        if self.chance(0.3):  # several tries, one after the other
            tries = tuple(self.attempt(1) for _ in range(self.one_of((2, 2, 3))))
            return (*tries, *self.told(1), *((Return(Var("b")),) if self.chance(0.5) else ()))
        return self.statements(0, self.one_of((1, 2, 2, 3, 3, 4)))

    def transaction(self) -> Program:
        number, is_first, program = 1, True, list[Statement]()
        for _ in range(self.one_of((1, 2, 2, 3))):
            begins = is_first if self.chance(0.95) else not is_first
            do = self.stored()
            if do.ask.verb == "insert many":
                continue
            program.append(do._replace(ask=do.ask._replace(transaction=(Session(), number, begins))))
            is_first = False
        end = Do(Ask(self.one_of(("commit", "commit", "commit", "abort")), transaction=(Session(), number, False)), "a")
        program.append(Do(Ask("note", name="m", value=Var("b"))) if self.chance(0.1) else end)
        if self.chance(0.3):
            program.append(end)
        if self.chance(0.2):
            program.append(self.stored())
        match self.random.randrange(4):
            case 0:
                failure = self.one_of(("not applied", "any", "not durable", "ambiguous"))
                return (
                    Repeat("i", 2, (Try((*program, Break()), failure, (Set("b", Const("again")),)),)),
                    Return(Var("a")),
                )
            case 1:
                abort = Do(Ask("abort", transaction=(Session(), number, False)))
                return (
                    Try(tuple(program), "any", (abort, self.one_of((Reraise(), Set("b", Const("lost")))))),
                    Return(Var("b")),
                )
            case _:
                return tuple(program)

    def attempt(self, depth: int) -> Statement:
        request = self.stored()
        failure = self.one_of(("ambiguous", "ambiguous", "not applied", "refused", "any", "any"))
        match self.random.randrange(6):
            case 0:
                pause = Do(Ask("sleep", value=QUANTUM)) if self.is_timed else Set("b", Const("again"))
                return Repeat(
                    "ij"[min(depth, 1)], self.one_of((2, 2, 3)), (Try((request, Break()), failure, (pause,)),)
                )
            case 1:
                return Finally((request, *self.body(2)[:1]), (self.cleanup(),))
            case 2:
                return Try((request,), failure, (self.stored(), *((Reraise(),) if self.chance(0.5) else ())))
            case 3:
                return Try((Finally((request,), (self.cleanup(),)),), failure, (Set("b", Const("lost")),))
            case _:
                return Try((request,), failure, (Set("b", self.one_of((Const("lost"), Const("gone")))),))

    def cleanup(self) -> Statement:
        match self.random.randrange(4):
            case 0:
                return Do(Ask("note", name="m", value=self.value()))
            case 1:
                return Try((self.stored(),), "any", (Set("b", Const("lost")),))
            case _:
                return self.stored()

    def body(self, depth: int) -> Program:
        return self.statements(depth, self.one_of((1, 1, 2)))

    def statements(self, depth: int, count: int) -> Program:
        return tuple(each for _ in range(count) for each in self.told(depth))

    def told(self, depth: int) -> Program:
        if self.has_clocks and self.chance(0.4):
            into = self.one_of("ab")
            wait = (
                (Do(Ask("sleep", value=self.one_of((1, 2)) * QUANTUM)),) if self.is_timed and self.chance(0.5) else ()
            )
            return (*wait, Do(Ask("now"), into), Do(Ask("note", name="m", value=Var(into))))
        if self.is_relative and self.chance(0.1):  # an instant that comes and goes, or is kept
            asks = Do(Ask("time"), "a")
            return (
                (asks, Set("a", Const(None)))
                if self.chance(0.8)
                else (asks, Do(Ask("note", name="m", value=Const(1))), Return(Var("a")))
            )
        if self.transacts and self.chance(0.3):
            return self.transaction()
        if self.streams and self.chance(0.4):
            do = self.of_stream()
            return (do, Do(Ask("note", name="m", value=Var(do.into)))) if do.into and self.chance(0.5) else (do,)
        if self.fails_over and self.chance(0.4):
            write = Do(Ask("update", (self.pinned()[0],), self.changes()))
            return (Try((write,), "not durable", (Set("b", Const("unsure")),)),)
        return (self.statement(depth),)

    def statement(self, depth: int) -> Statement:
        if depth < 2 and self.chance(0.35):
            match self.random.randrange(10):
                case 7 | 8:
                    return self.attempt(depth + 1)
                case 9:
                    return Finally(self.body(depth + 1), (self.cleanup(),))
                case 0 | 1:
                    then, otherwise = self.body(depth + 1), self.body(depth + 1) if self.chance(0.4) else ()
                    return If(self.value(), self.value(), then, otherwise)
                case 2:
                    body = self.body(depth + 1)
                    is_lazy = self.chance(0.5) and "While(" not in repr(body)
                    return Repeat("ij"[depth], self.one_of((1, 2)), body, is_lazy)
                case 3:
                    find = Do(self.find(), "a", self.one_of("vo"))
                    return While(Var("a"), Const(self.one_of((1, None))), (find, *self.body(depth + 2)[:1]))
                case _:
                    failure = self.one_of(("ambiguous", "ambiguous", "not applied", "refused", "any"))
                    handler = (Set("b", Const("lost")),) if self.chance(0.6) else self.body(depth + 1)
                    return Try(self.body(depth + 1), failure, handler)
        match self.random.randrange(16):
            case 0:
                return Set(self.one_of("ab"), self.value())
            case 1:
                return Return(self.value())
            case 2 if self.raises:
                return Raise()
            case 3 | 4:
                return Do(Ask("note", name=self.one_of("mn"), value=self.value()))
            case 5 if self.is_timed:
                return Do(Ask("sleep", value=self.one_of((1, 2, 4)) * QUANTUM // 2))
            case 7 | 8 | 9 | 10 if self.calls:
                return Do(Ask("call", name="user", value=self.value()), self.one_of("ab"))
            case 6 if self.is_timed and not self.is_relative:
                return Do(Ask("time"), self.one_of("ab"))
            case _:
                return self.stored()

    def stored(self) -> Do:
        verb = self.one_of(
            ("find", "find", "find and update", "find and update", "update", "insert", "delete", "find all", "upsert")
        )
        if self.writes_many and self.chance(0.6):
            return self.of_many()
        into = self.one_of(("a", "a", "b", ""))
        # Relative time cannot represent instants, so most scenarios hold them only in absolute
        # time.
        whole = not self.is_relative or self.chance(0.05)
        field = "" if (whole and self.chance(0.4)) or not into else self.one_of("vo")
        match verb:
            case "find":
                return Do(self.find(), into, field)
            case "find all" if not self.is_symmetric and whole:
                return Do(Ask("find all", self.where(), value=self.one_of((1, 2)), sort=self.sort()), into)
            case "upsert":
                id_ = Me() if self.chance(0.2) and not self.is_symmetric else Const(self.one_of((*IDS, "z")))
                return Do(Ask("upsert", (Term("Eq", "_id", id_),), self.changes()), into, field)
            case "insert":
                id_ = Const(self.one_of(IDS)) if self.chance(0.6) else Me()
                changes = (
                    Term("Put", "v", Const(1)),
                    *((Term("Put", "o", self.scalar()),) if self.chance(0.5) else ()),
                )
                return Do(Ask("insert", changes=changes, value=id_))
            case "delete":
                return Do(Ask("delete", self.pinned()), into)
            case "update":
                return Do(Ask("update", self.pinned(), self.changes()), into)
            case _:
                where = self.pinned()
                return Do(Ask("find and update", where, self.changes(), sort=self.sort()), into, field)

    def of_many(self) -> Do:
        into = self.one_of(("", "a", "b"))
        match self.random.randrange(5):
            case 0 | 1:
                return Do(Ask("update many", self.where(), self.changes()), into)
            case 2:
                return Do(Ask("delete many", self.where()), into)
            case 3:
                ids = self.random.sample((*IDS, "z"), 2)
                wheres = (
                    (Term("Eq", "_id", Const(id_)), *(self.where()[:1] if self.chance(0.3) else ())) for id_ in ids
                )
                return Do(Ask("bulk", value=tuple(Ask("update", where, self.changes()) for where in wheres)), into)
            case _:
                ids = self.random.sample((*IDS, "z", "w"), self.one_of((1, 2)))
                return Do(
                    Ask(
                        "insert many",
                        value=tuple(
                            Ask("insert", changes=(Term("Put", "v", Const(1)),), value=Const(id_)) for id_ in ids
                        ),
                    ),
                    into,
                )

    def sort(self) -> tuple[str, ...]:
        if self.is_symmetric or self.chance(0.6):
            return ()
        names = self.random.sample("vot" if self.is_timed else "vo", self.one_of((1, 1, 2)))
        return tuple(("-" if self.chance(0.5) else "") + name for name in names)

    def of_stream(self) -> Do:
        epoch, history, at = self.one_of((1, 1, 1, 2)), self.one_of((0, 0, 1)), self.one_of("bbba")
        match self.random.randrange(8):
            case 0:
                return Do(Ask("locate"), at)
            case 1 | 2:
                return Do(Ask("save", name=f"{epoch}, {history}", value=Var(at)))
            case 3:
                return Do(Ask("reset", name=f"{epoch}, {history + 1}"))
            case _:
                return Do(Ask("read", value=Const(None) if self.chance(0.2) else Var(at)), at)

    def find(self) -> Ask:
        return Ask("find", self.pinned(), sort=self.sort())

    def pinned(self) -> tuple[Term, ...]:
        """Mostly a filter for one document: a scan distinguishes interchangeable processes."""
        scans = not self.is_symmetric and self.chance(0.15)
        return self.where() if scans else (Term("Eq", "_id", Const(self.one_of(IDS))), *self.where()[:1])

    def where(self) -> tuple[Term, ...]:
        return tuple(self.term() for _ in range(self.one_of((1, 1, 2)))) if self.chance(0.6) else (Term("Lt", "v", 2),)

    def term(self) -> Term:
        match self.random.randrange(9):
            case 0 | 1 if self.is_timed:
                most = self.horizon if self.is_relative else 3
                return Term("OlderThan", "t", self.one_of(range(most + 1)) * QUANTUM)
            case 0:
                return Term("In", "v", (0, None)[: self.one_of((1, 2))])
            case 1:
                return Term("Lt", "v", self.one_of((1, 2)))
            case 2:
                return Term("Exists", self.one_of("votl"))
            case 3:
                return Term("any", value=(self.term(), self.term()))
            case 4:
                return Term("Contains", "l", self.scalar())
            case 5 | 6:
                return Term("Eq", "o", self.one_of((Me(), Const(None), self.scalar())))
            case _:
                return Term("Eq", "v", self.scalar())

    def changes(self) -> tuple[Term, ...]:
        fields = self.random.sample("volt" if self.is_timed else "vol", self.one_of((1, 1, 2)))
        return tuple(self.change(field) for field in fields)

    def change(self, field: str) -> Any:
        match field:
            case "v":
                return self.one_of((Term("Add", "v", 1), Term("Put", "v", Const(1)), Term("Put", "v", self.scalar())))
            case "o":
                return self.one_of((Term("Put", "o", Me()), Term("Put", "o", Const(None)), Term("Remove", "o")))
            case "t":
                return self.one_of((Term("PutServerTime", "t"), Term("PutServerTime", "t"), Term("Remove", "t")))
            case _:
                verb = self.one_of(("Push", "Push last", "Pull", "AddToSet"))
                return Term(verb, "l", self.one_of((Me(), Const(1), self.scalar())))

    def value(self) -> Any:
        if self.chance(0.1):
            return Life()
        return (
            self.one_of((Var("a"), Var("b"), Const(1), Const(None), Me(), Picked("a", "v")))
            if self.chance(0.7)
            else self.scalar()
        )

    def scalar(self) -> Any:
        return self.one_of((Const(0), Const(1), Const(None), Picked("a", "v"), Picked("b", "o"), Picked("a", "o")))


def is_scalar(value: object) -> bool:
    return isinstance(value, tuple) and value[0] in {"NoneType", "int", "str"}


def drawn(seed: str) -> Little:
    random, is_sleepy = Random(seed), Random(f"{seed} asleep").random() < SLEEPY
    returns = Random(f"{seed} gone and back").random() < RETURNING
    looks = Random(f"{seed} looks at several").random() < LOOKING
    upserts = Random(f"{seed} looks first").random() < UPSERTING
    is_refused = Random(f"{seed} refusals").random() < REFUSED
    while True:
        draw = Draw(random)
        little = draw.little()
        if is_sleepy:
            sleep = Do(Ask("sleep", value=QUANTUM // 2))
            little = little._replace(
                actors=tuple(each._replace(program=(*each.program, sleep)) for each in little.actors)
            )
        if returns and little.symmetric:
            little = with_documents_that_return(little)
        if looks and not little.symmetric and not draw.is_relative:
            little = with_a_look_at_several(little)
        if upserts:
            little = with_upserts(little)
        if is_refused:
            little = with_refusals(little)
        try:
            found = search(little, states_max=STATES_MAX, relative=draw.is_relative)
        except TooLargeError:
            continue
        if found.states >= STATES_MIN:
            return draw.with_laws(little, found)


def with_documents_that_return(little: Little) -> Little:
    again = (
        Do(Ask("delete", (Term("Eq", "_id", Me()),))),
        Do(Ask("insert", changes=(Term("Put", "v", Const(1)),), value=Me())),
    )
    own = tuple(Doc((("_id", name), ("v", 1))) for name in little.symmetric)
    actors = tuple(
        each._replace(program=(*again, *each.program)) if each.name in little.symmetric else each
        for each in little.actors
    )
    return little._replace(docs=(*little.docs, *own), actors=actors)


def with_upserts(little: Little) -> Little:
    """Each process begins or ends with a counting upsert whose filter is more than an id."""
    where = Term("Eq", "_id", Const("z")), Term("Lt", "v", 3), Term("Eq", "o", Const(None))
    count = Do(Ask("upsert", where, (Term("Add", "v", 1),)), "a", "v")
    caught = Try((count,), "refused", (Set("b", Const("lost")),)), Do(Ask("note", name="n", value=Var("b")))
    return little._replace(
        actors=tuple(
            each._replace(
                program=(*each.program, count) if nth % 2 and not little.symmetric else (*caught, *each.program)
            )
            for nth, each in enumerate(little.actors)
        )
    )


def with_refusals(little: Little) -> Little:
    """Each process first inserts the same document and notes a refusal, for rolled back writes."""
    if not any({"not_durable", "rolled_back"} <= each.faults for each in little.actors):
        return little
    insert = Do(Ask("insert", changes=(Term("Put", "v", Const(1)),), value=Const("z")))
    caught = Try((insert,), "refused", (Set("b", Const("lost")),)), Do(Ask("note", name="n", value=Var("b")))
    return little._replace(actors=tuple(each._replace(program=(*caught, *each.program)) for each in little.actors))


def with_a_look_at_several(little: Little) -> Little:
    """The first process writes twice, and the last one with faults finds all, for stale finds."""
    names = [each.name for each in little.actors if "stale_read" in each.faults and not each.on_writes]
    writes = tuple(Do(Ask("update", (Term("Eq", "_id", Const(id_)),), (Term("Add", "v", 1),))) for id_ in IDS)
    look = Do(Ask("find all", (Term("Exists", "_id"),), value=3), "a"), Do(Ask("note", name="m", value=Var("a")))
    if not names:
        return little
    first, *rest = little.actors
    return little._replace(
        actors=tuple(
            each._replace(program=(*each.program, *look)) if each.name == names[-1] else each
            for each in (first._replace(program=(*writes, *first.program)), *rest)
        )
    )


# --- for the simulator --------------------------------------------------------------------------------------------------


def held(value: object) -> object:
    match value:
        case Document(items):
            return Doc(tuple((name, held(item)) for name, item in items))
        case Instant(at, clock):
            return At(at, clock == WALL)
        case bool():
            return Truth(value)
        case tuple():
            return tuple(map(held, value))
        case change_stream.After(int(token)):
            return After(token)
        case change_stream.From(int(time)):
            return From(time)
        case change_stream.Page(changes, position):
            return Page(held(changes), held(position))  # type: ignore[arg-type]
        case change_stream.DocumentChange(collection, key, is_gone):
            return DocumentChange(collection, key, is_gone)
        case change_stream.Broken(code):
            return Broken(code or 0)
        case _:
            return value


def given(value: Any) -> Any:
    match value:
        case Doc(fields):
            return Document.of({name: given(item) for name, item in fields})
        case At(us):
            return Instant(us)
        case Truth(flag):
            return flag
        case _:
            return value


def from_here(position: After | From) -> change_stream.Position:
    if isinstance(position, After):
        return change_stream.After(position.token)
    return change_stream.From(position.time)


def picked(reply: object, field: str) -> object:
    return dict(reply.items).get(field) if isinstance(reply, Document) else None


def same(left: object, right: object) -> bool:
    return documents.exactly(left) == documents.exactly(right)


WORDS = {
    **vars(documents),
    **vars(operations),
    **vars(transactions),
    **vars(effects),
    "picked": picked,
    "same": same,
    **vars(change_stream),
    "position_of": lambda value: from_here(position_of(held(value))),
    "Truth": lambda value: value,
    "Doc": lambda fields: given(Doc(fields)),
    "At": lambda at, wall: Instant(at, WALL if wall else STORE),
}


@cache
def shown(ask: Ask) -> str:
    return repr(eval(request(ask), dict(WORDS)))  # noqa: S307


def program_of(actor: Actor) -> Callable[[int], Any]:
    scope = dict(WORDS)
    exec(source(actor.program), scope)  # noqa: S102
    program: Any = scope["program"]
    return lambda life: program(actor.name, life)


class Plainly:
    """A state with the search's own instants, which a user's law never gets in relative time."""

    def __init__(self, state: State) -> None:
        self.state, now = state, state.read(CLOCK)
        self.horizon = now._horizon.length if isinstance(now, RelativeInstant) else None  # noqa: SLF001
        self.now = cast("Instant", plain(now)).at

    def read(self, cell: Cell[Any]) -> Any:
        return self._plain(self.state.read(cell))

    def status(self, process: str) -> object:
        return self._plain(self.state.status(process))

    def _plain(self, value: object) -> object:
        return value if self.horizon is None else aged(plain(value), self.now, self.horizon)


def seen_by(little: Little, state: State) -> Seen:
    state = Plainly(state)
    names = tuple(actor.name for actor in little.actors)
    horizon = little.clock[0] if little.clock else None
    record = contents(state, "streams") if little.stream else ()
    docs = tuple(seen_of(horizon, doc) for doc in (*contents(state, "c"), *record))
    stands = tuple((name, *stands_as(state.status(name))) for name in names)
    noted = tuple(
        (name, tuple((each, typed(held(value))) for each, value in sorted(_noted(name, state)))) for name in names
    )
    return docs, stands, noted, state.read(CLOCK).at


@lru_cache(1_000)
def seen_of(horizon: int | None, doc: Document) -> object:
    return typed(_within(horizon, held(doc)))


def _within(horizon: int | None, value: object) -> object:
    match value:
        case At(at) if horizon is not None:
            return At(max(at, -horizon))
        case Doc(fields):
            return Doc(tuple((name, _within(horizon, item)) for name, item in fields))
        case _:
            return value


def _repr(effect: Effect[object]) -> str:
    """Without a cache: the notes of 1 and True are equal."""
    return repr(effect)


NAMED = {name: kind for kind, name in ANSWERED_BY.items()}


def _noted(name: str, state: State) -> tuple[tuple[str, object], ...]:
    return state.read(notes(name))


def stands_as(status: object) -> tuple[str, object]:
    match status:
        case Asking(effect):
            return "asks", _repr(effect)
        case Returned(value):
            return "returned", typed(held(value))
        case Failed(failure):
            return "failed", NAMED[type(failure).__name__]
        case Raised():
            return "raised", None
        case Crashed():
            return "crashed", None
        case _:
            return "cancelled", None


def as_shown(look: Seen) -> Seen:
    docs, stands, noted, now = look
    return docs, tuple((who, how, shown(what) if how == "asks" else what) for who, how, what in stands), noted, now


def scenario_of(little: Little, **laws: Any) -> Scenario:
    meaning = perform if not little.answers else calling({"user": tuple(map(given, little.answers))})
    meaning = recalling(meaning) if little.failover else meaning
    world = world_with(
        {"c": tuple(map(given, little.docs))}, {"c": ((documents.Field(little.unique),),)} if little.unique else {}
    )
    more: list[Any] = [Failover()] if little.failover else []
    if little.stream is not None:
        watched, others = (("c",), ()) if little.stream.is_watched else (("d",), ("c",))
        stream = streams.Stream("s", watched, others, little.stream.page)
        meaning, world = stream.meaning(meaning), stream.begun(world, 1)
        more += [streams.Forgetful(little.stream.keep)] if little.history_lost else []
    if little.network:
        more.append(Network(meaning))
    actors = tuple(
        Process(
            actor.name, program_of(actor), _faults(actor), meaning, clocks.Host(*actor.host),
            comes_back=actor.comes_back,
        )
        for actor in little.actors
    )  # fmt: skip
    if little.expiry:
        more.append(Expiry(actors))
    return Scenario(
        name="little",
        summary="drawn at random",
        world=world,
        actors=(*actors, *more),
        budget=little.budget,
        budgets={Fault(kind): number for kind, number in little.budgets},
        clock=Clock(QUANTUM, horizon=little.clock[0], moves=little.clock[1]) if little.clock else None,
        symmetric=(little.symmetric,) if little.symmetric else (),
        **laws,
    )


def _faults(actor: Actor) -> Faults:
    on = _is_write if actor.on_writes else all_effects
    return Faults({Fault(kind): is_call if kind in OF_CALLS else on for kind in sorted(actor.faults)})


OF_CALLS = {"failed", "never_returns"}


def is_call(effect: object) -> bool:
    return isinstance(effect, Call)


def _is_write(effect: object) -> bool:
    return type(getattr(effect, "operation", effect)).__name__ in WRITES


WRITES = {
    "FindOneAndUpdate", "UpdateOne", "UpsertOne", "InsertOne", "DeleteOne", "Call", "Save", "ResetHistory", "UpdateMany",
    "DeleteMany", "BulkUpdate", "InsertMany", "CommitTransaction",
}  # fmt: skip


def with_laws(little: Little, **more: Any) -> Scenario:
    def holds(law: Law) -> Callable[[State], bool]:
        # In the order of the facts, with early exit: the footprint of a law depends on what it
        # reads.
        if law.at_least:
            return lambda state: any(_fact(fact, state) for fact in law.facts)
        return lambda state: not all(_fact(fact, state) for fact in law.facts)

    def reached(law: Law) -> Callable[[State], bool]:
        return lambda state: not holds(law)(state)

    def joins(law: Law) -> Callable[[State, State], bool]:
        def judge(before: State, after: State) -> bool:
            if not all(_fact(fact, before) for fact in law.facts):
                return True
            return all(_fact(fact, before) for fact in law.after) or not all(_fact(fact, after) for fact in law.after)

        return judge

    return scenario_of(
        little,
        always={each: tuple(holds(law) for name, law in little.always if name == each) for each in dict(little.always)},
        step={name: joins(law) for name, law in little.step},
        eventually={**{name: holds(law) for name, law in little.eventually}, **more},
        sometimes={name: reached(law) for name, law in little.sometimes},
    )


def _fact(fact: Fact, state: State) -> bool:
    """Like `is_fact` on a simulator state, with as few reads as possible."""
    state = state if fact.of == "age" else Plainly(state)
    match fact.of:
        case "age":
            found = state.read(_document(fact.who))
            since = found and dict(found.items).get(fact.what)
            holds = isinstance(since, Instant) and state.read(CLOCK) - since >= cast("int", fact.value)
        case "doc":
            found = state.read(_document(fact.who))
            here = found is not None and dict(found.items).get(fact.what, _ABSENT)
            holds = here is not False and here is not _ABSENT and typed(held(here)) == typed(fact.value)
        case "stands":
            how, what = stands_as(state.status(fact.who))
            holds = how == fact.what and (how != "returned" or what == typed(fact.value))
        case _:
            entries = dict(_noted(fact.who, state))
            holds = fact.what in entries and typed(held(entries[fact.what])) == typed(fact.value)
    return holds is not fact.denied


_ABSENT = object()


@cache
def _document(id_: str) -> Any:
    return document("streams" if id_ == "s" else "c", id_)


# --- compared -----------------------------------------------------------------------------------------------------------


class DiffersError(AssertionError):
    pass


def _must_agree(what: str, mine: object, theirs: object, little: Little) -> None:
    if mine != theirs:
        raise DiffersError(f"{what}: {mine} here, and {theirs} there\n{told(little)}")


def _must_be_the_same(what: str, mine: AbstractSet[Any], theirs: AbstractSet[Any], little: Little) -> None:
    _must_agree(what, list(mine - theirs)[:2], list(theirs - mine)[:2], little)


def told(little: Little) -> str:
    programs = "\n".join(
        f"# {actor.name}: {sorted(actor.faults)}, on writes: {actor.on_writes}\n{source(actor.program)}"
        for actor in little.actors
    )
    return f"{little._replace(actors=())}\n{programs}"


def is_relative(report: Report) -> bool:
    return report.time.startswith("relative")


def compared(little: Little, reductions: Iterable[Reductions], *, with_pairs: bool = True) -> None:
    """Assert that both find the same; the comparison of transitions is slow, so optional."""
    seen: set[Seen] = set()
    rest: set[Seen] = set()
    pairs: set[tuple[Seen, Seen]] = set()

    def see(state: State) -> bool:
        seen.add(seen_by(little, state))
        return True

    def see_rest(state: State) -> bool:
        rest.add(seen_by(little, state))
        return True

    def see_pair(before: State, after: State) -> bool:
        one, other = seen_by(little, before), seen_by(little, after)
        if one != other:
            pairs.add((one, other))
        return True

    steps = {"pairs": see_pair} if with_pairs else {}
    laws: dict[str, Any] = {"always": {"seen": see}, "eventually": {"rest": see_rest}, "step": steps}
    report = explore(scenario_of(little, **laws), exploration(little, Reductions()))
    relative = is_relative(report)
    if has_horizon(little.clock) and not relative:  # notes from relative time do not count
        for collected in (seen, rest, pairs):
            collected.clear()
        absolute = little._replace(clock=without_horizon(little.clock))
        report = explore(scenario_of(absolute, **laws), exploration(little, Reductions()))
    found = found_in(little, relative=relative)
    if relative and NO_ERROR not in found.broken:  # otherwise it may end before the refusal of relative time
        _must_agree(
            "relative time and absolute time are the same",
            same_in_both_times(little, MOVES, (STATES_MAX, 3_000)) is not False,
            True,
            little,
        )
    if NO_ERROR in found.broken:
        _must_agree("the verdict on what is raised", ("violated", NO_ERROR), (str(report.verdict), report.law), little)
    else:
        wanted = Verdict.COMPLETE if found.rests else Verdict.INCONCLUSIVE
        _must_agree("the verdict without laws", wanted, report.verdict, little)
        all_seen = set(map(as_shown, found.seen))
        _must_be_the_same("what is seen", all_seen, seen, little)
        _must_be_the_same("what is seen at rest", set(map(as_shown, found.rest | found.restless)), rest, little)
        _must_be_the_same(
            "what changes",
            {(as_shown(one), as_shown(other)) for one, other in found.changes if with_pairs},
            pairs,
            little,
        )
        _must_agree("faults", found.faults, {str(kind) for kind in report.faults}, little)
        if little.symmetric:
            seen.clear()
            same_time = little if relative else little._replace(clock=without_horizon(little.clock))
            explore(scenario_of(same_time, always={"seen": see}), exploration(little, Reductions(symmetry=True)))
            _must_be_the_same("what is seen with symmetry", all_seen, seen, little)
    for each in reductions:
        rest.clear()
        whole = with_laws(little, **({"rest": see_rest} if little.eventually else {}))
        report = explore(whole, exploration(little, each))
        if is_relative(report) != relative:
            found = found_in(little, relative=is_relative(report))
            relative = is_relative(report)
        judged(little, report, found)
        if report.trace is not None:
            _must_agree("the trace is reproduced", True, isinstance(replay(report.trace, whole), Reproduced), little)
        if report.verdict is Verdict.COMPLETE and little.eventually and relative == has_horizon(little.clock):
            # With reductions, the search need not visit each state of a cycle.
            restless = set(map(as_shown, found.restless)) & rest
            _must_be_the_same(
                f"what is seen at rest with {each}", set(map(as_shown, found.rest)) | restless, rest, little
            )


Clocked: TypeAlias = tuple[int | None, int] | None


def has_horizon(clock: Clocked) -> bool:
    return clock is not None and clock[0] is not None


def without_horizon(clock: Clocked) -> Clocked:
    return clock and (None, clock[1])


def found_in(little: Little, *, relative: bool) -> Found:
    try:
        return search(little, states_max=STATES_MAX, relative=relative)
    except TooLargeError:
        return search(little, states_max=EXPLORED_MAX, relative=relative)


def exploration(little: Little, reductions: Reductions) -> Exploration:
    faults = None if little.chosen is None else tuple(map(Fault, little.chosen))
    return Exploration(states_max=EXPLORED_MAX, reductions=reductions, faults=faults, faults_max=little.faults_max)


def judged(little: Little, report: Report, found: Found) -> None:
    if found.broken:
        fewest = min(found.broken.values())
        steps = None if report.trace is None else len(report.trace.steps)
        _must_agree("the verdict", "violated", str(report.verdict), little)
        _must_agree("the shortest way", fewest, steps, little)
        _must_agree("the law", True, found.broken.get(report.law or "") == fewest, little)
    elif found.livelocked and (
        report.law or not report.cut_short
    ):  # what goes round for ever may do so only because time ran out
        _must_agree("the verdict", "violated", str(report.verdict), little)
        _must_agree("the law", True, report.law in found.livelocked, little)
    else:
        rests = found.rests or not little.eventually
        _must_agree("the verdict", "complete" if rests else "inconclusive", str(report.verdict), little)
        _must_agree("goals", found.goals, dict(report.goals), little)
