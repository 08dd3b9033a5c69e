"""A trace as plain JSON, and back: `tidegate/trace@1`.

A reader ignores unknown keys, and reads unknown kinds of steps and lanes as "other" and "process".
So later versions may add some. Older files of tidegate, with fewer members, can be read, too. The
essential members (actors, events, changes) are required and checked, since a file may come from
anywhere. `meta.faults` and `verdict.step` are for other readers; `decoded` ignores them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeVar, cast

from tidegate.model.documents import Document, checked
from tidegate.model.errors import Misuse
from tidegate.model.patches import Json, from_json, patch_from_json, patch_to_json, to_json
from tidegate.sim.trace.trace import (
    Breach,
    Choice,
    Done,
    Lane,
    LawKind,
    Mover,
    NamedLaw,
    Option,
    Passing,
    PolicyName,
    StepKind,
    Trace,
    TraceStep,
    Truth,
    states_of,
)

SCHEMA: Final = "tidegate/trace@1"
_AT_MAX: Final = 2**63 - 1
T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


def encoded(trace: Trace) -> dict[str, Json]:
    return {
        "schema": SCHEMA,
        "meta": {
            "scenario": trace.scenario,
            "summary": trace.summary,
            "versions": {"tidegate": trace.version, "python": trace.python},
            "seed": trace.seed,
            "time": trace.time,
            "policy": trace.policy.value,
            "fingerprint": trace.fingerprint,
            "faults": cast("Json", dict(trace.faults)),
            **({"never": list(trace.never)} if trace.never else {}),
        },
        "processes": [{"name": mover.name, "kind": mover.kind.value} for mover in trace.movers],
        "laws": [{"name": law.name, "kind": law.kind.value} for law in trace.laws],
        "initial": to_json(trace.initial),
        "steps": _steps_to_json(trace.steps),
        "verdict": {
            "law": trace.law,
            "kind": trace.breach.value,
            "step": len(trace.steps) if trace.law else 0,
            "why": trace.why,
            "loop": trace.loop,
        },
        "passing": None
        if trace.passing is None
        else {"differs_at": trace.passing.differs_at, "steps": _steps_to_json(trace.passing.steps)},
        "original": None if trace.original is None else {"steps": _steps_to_json(trace.original)},
    }


def _steps_to_json(steps: tuple[TraceStep, ...]) -> list[Json]:
    return [_step_to_json(number, step) for number, step in enumerate(steps, 1)]


def _step_to_json(number: int, step: TraceStep) -> dict[str, Json]:
    return {
        "i": number,
        "t": step.at,
        "process": step.process,
        "event": step.event,
        "kind": step.kind.value,
        "fault": step.fault,
        "choice": {
            "enabled": [
                {"process": option.process, "event": option.event, "fault": option.fault}
                for option in step.choice.enabled
            ],
            "taken": step.choice.taken,
        },
        "effects": [{"what": done.what, "on": list(done.on), "reply": done.reply} for done in step.effects],
        "patch": cast("Json", patch_to_json(step.patch)),
        "properties": {law: truth.value for law, truth in step.truths},
        "cause": list(step.causes),
        "src": step.src,
    }


def decoded(json: object) -> Trace:
    """The trace in the JSON.

    Raises:
        Misuse: It is no trace, or has another version.
    """
    if not isinstance(json, dict) or not str(json.get("schema", "")).startswith("tidegate/trace@"):
        raise Misuse("this is not a trace", todo="traces are written by tidegate explore")
    if json["schema"] != SCHEMA:
        raise Misuse(f"a trace of version {json['schema']!r}", why=f"this tidegate reads {SCHEMA!r}")
    return _trace_from(_Reading(cast("dict[str, object]", json), "it"))


class _Reading:
    """An object of the file; reads members by name and type."""

    def __init__(self, members: object, where: str) -> None:
        if not isinstance(members, dict):
            raise Misuse("a trace is damaged", why=f"{where} is not an object")
        self.members, self.where = cast("dict[str, object]", members), where

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def value(self, name: str) -> object:
        if name not in self.members:
            raise Misuse("a trace is damaged", why=f"{self.where} has no {name!r}")
        return self.members[name]

    def text(self, name: str, default: str | None = None) -> str:
        return default if default is not None and name not in self.members else _text(self.value(name))

    def number(self, name: str, end: int) -> int:
        found = self.value(name)
        if type(found) is not int or not 0 <= found <= end:
            raise Misuse("a trace is damaged", why=f"{name!r} of {self.where} is not a number from 0 to {end}")
        return found

    def under(self, name: str) -> _Reading:
        return _Reading(self.members.get(name, {}), f"{name!r} of {self.where}")

    def items(self, name: str, read: Callable[[object], T], *, needed: bool = False) -> tuple[T, ...]:
        found = self.value(name) if needed else self.members.get(name, [])
        if not isinstance(found, list):
            raise Misuse("a trace is damaged", why=f"{name!r} of {self.where} is not a list")
        return tuple(map(read, cast("list[object]", found)))

    def kind(self, name: str, kinds: type[E], otherwise: E) -> E:
        return _kind_of(self.text(name, otherwise.value), kinds, otherwise)


def _kind_of(said: str, kinds: type[E], otherwise: E) -> E:
    return kinds(said) if said in set(kinds) else otherwise


def _text(item: object) -> str:
    if isinstance(item, str):
        checked(item, "a trace")
        return item
    raise Misuse(f"a trace has {item!r} where a text belongs")


def _trace_from(whole: _Reading) -> Trace:
    meta, verdict = _Reading(whole.value("meta"), "'meta'"), whole.under("verdict")
    versions = meta.under("versions")
    initial = from_json(whole.value("initial"))
    if not isinstance(initial, Document):
        raise Misuse("the first state of a trace is an object")
    seed = meta.value("seed")
    law = _text(meta.value("law")) if "law" in meta else verdict.text("law")  # older files have it there
    steps = _steps_from(whole, initial)
    return Trace(
        scenario=meta.text("scenario"),
        version=meta.text("version") if "version" in meta else versions.text("tidegate"),
        law=law,
        time=meta.text("time"),
        seed=None if seed is None else _text(seed),
        movers=whole.items("processes", mover, needed=True),
        initial=initial,
        steps=steps,
        breach=verdict.kind("kind", Breach, Breach.SAFETY if law else Breach.NONE),
        laws=whole.items("laws", _named_law),
        policy=meta.kind("policy", PolicyName, PolicyName.RANDOM if seed is not None else PolicyName.EXHAUSTIVE),
        python=versions.text("python", ""),
        fingerprint=meta.text("fingerprint", ""),
        passing=_passing(whole, initial),
        original=None if whole.members.get("original") is None else _steps_from(whole.under("original"), initial),
        summary=meta.text("summary", ""),
        why=verdict.text("why", ""),
        loop=verdict.number("loop", len(steps)) if "loop" in verdict else 0,
        never=meta.items("never", _text),
    )


def _passing(whole: _Reading, initial: Document) -> Passing | None:
    if whole.members.get("passing") is None:
        return None
    found = whole.under("passing")
    steps = _steps_from(found, initial)
    return Passing(found.number("differs_at", len(steps) + 1), steps)


def _steps_from(holder: _Reading, initial: Document) -> tuple[TraceStep, ...]:
    """The steps; checks that their patches fit."""
    steps = holder.items("steps", lambda item: item, needed=True)
    found = tuple(_step_from(_Reading(item, f"step {number}"), number) for number, item in enumerate(steps, 1))
    for state in states_of(initial, found):
        if not isinstance(state, Document):
            raise Misuse("a trace is damaged", why="a patch makes a state that is not an object")
    return found


def _step_from(step: _Reading, number: int) -> TraceStep:
    at = step.members.get("t")
    return TraceStep(
        process=step.text("process"),
        event=step.text("event" if "event" in step else "what"),  # older files have it there
        fault=step.text("fault", ""),
        patch=patch_from_json(step.value("patch")),
        at=None if at is None else step.number("t", _AT_MAX),
        kind=step.kind("kind", StepKind, StepKind.OTHER),
        choice=_choice(step.under("choice")),
        effects=step.items("effects", done),
        truths=tuple(
            (_text(law), _kind_of(_text(said), Truth, Truth.OPEN))
            for law, said in step.under("properties").members.items()
        ),
        causes=step.items("cause", lambda item: _earlier(item, number)),
        src=step.text("src", ""),
    )


def _choice(found: _Reading) -> Choice:
    if not found.members:
        return Choice()
    enabled = found.items("enabled", option)
    return Choice(enabled, found.number("taken", max(0, len(enabled) - 1)))


def option(item: object) -> Option:
    found = _Reading(item, "a choice")
    return Option(found.text("process"), found.text("event"), found.text("fault", ""))


def done(item: object) -> Done:
    found = _Reading(item, "an effect")
    return Done(found.text("what"), found.items("on", _text), found.text("reply", ""))


def _earlier(item: object, number: int) -> int:
    if type(item) is not int or not 0 < item < number:
        raise Misuse("a trace is damaged", why=f"a cause of step {number} is not an earlier step")
    return item


def mover(item: object) -> Mover:
    if isinstance(item, str):  # in older files
        return Mover(_text(item))
    found = _Reading(item, "a process")
    return Mover(found.text("name"), found.kind("kind", Lane, Lane.PROCESS))


def _named_law(item: object) -> NamedLaw:
    found = _Reading(item, "a law")
    return NamedLaw(found.text("name"), found.kind("kind", LawKind, LawKind.ALWAYS))
