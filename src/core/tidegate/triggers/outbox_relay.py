"""The relay of the outbox in invocation records: triggers notice each status change once.

The write that changes a status that a trigger waits for also pushes the new version into `notice`
(`listened` returns the tasks and statuses). This is an outbox in the record (Richardson 2018,
"Microservices Patterns", 3.3.7): one write, so no failure can separate the change from its notice.
A pass makes occurrences of the notices:

    1  read records that have a notice, a page at a time, THEN the time
    2  insert an occurrence of each condition that holds of each version (`happened`,
       `tidegate.triggers.trigger.noticed`)
    3  remove the notice if it is unchanged; else the next pass finds the versions pushed meanwhile

Arguments and results that are too large for a record are uploaded. A pass reads them when a filter
needs them; the evaluator reads them again for a provider (`whole`, `tidegate.triggers.evaluator`).
Occurrences store only where they are.

An interrupted or repeated pass makes the same occurrences, because their ids derive from what
happened. An occurrence that has fired and is inserted again does not fire as long as its run is
kept (`tidegate.triggers.firing`).

Laws
    NO1  A version leaves the notice only after each condition that holds of it has an occurrence.
    NO2  At rest no notice is left.
    NO3  Each version yields its status, and a result or an error if it ended so, and nothing else.
    NO4  A pass reads each record that has a notice, and reports those it cannot process, with the
         reason.
    NO5  The notice of a task that a trigger of another application version waits for stays.
    NO6  Filters and providers get everything an invocation was called with and returned.

Known not to work
    - A record remembers its last 16 versions. If more are written before a pass, the status of an
      older one is unknown; the pass reports it and removes it from the notice. The end is always
      known.
    - If each of two versions has a trigger on a task that the other does not know, notices of its
      runs stay until one version's declarations expire, minutes after its last process
      (`definitions`). Until then each pass reads them again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final, final

import attrs

from tidegate.invocations.record.invocation import FAILED, SUCCESS
from tidegate.invocations.record.record_documents import (
    ARGUMENTS,
    CHANGED_AT,
    ERROR,
    HISTORY,
    NOTICE,
    PAYLOAD,
    RESULT,
    RESULT_PAYLOAD,
    TASK,
    history,
)
from tidegate.model.documents import (
    ID,
    AllOf,
    Ascending,
    Document,
    Eq,
    Exists,
    Field,
    Fields,
    Filter,
    Remove,
    Sort,
    Value,
    cursor,
)
from tidegate.model.effects import Ambiguous, Call, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import (
    FOUND_MAX,
    Index,
    Indexes,
    StoreTime,
    bulk_update,
    check_collection,
    find_all,
    insert_many,
    update_one,
)
from tidegate.model.patches import from_json
from tidegate.model.programs import find_every, insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_tuple, check_type, check_types
from tidegate.triggers.conditions import (
    CONDITIONS,
    Composite,
    Condition,
    Everything,
    OnException,
    OnResult,
    OnStatus,
    condition_id,
    sources,
)
from tidegate.triggers.contexts import Context, ExceptionContext, Kind, ResultContext, StatusContext, without_contents
from tidegate.triggers.definitions import definition_of
from tidegate.triggers.trigger import Occurrence, noticed
from tidegate.triggers.trigger_documents import stored_occurrence

PAGE: Final = 100
READ: Final[Fields] = (ID, TASK, ARGUMENTS, PAYLOAD, CHANGED_AT, HISTORY, RESULT, RESULT_PAYLOAD, ERROR, NOTICE)
UPLOADED: Final = "tidegate.uploaded"
"""The user code that returns the text of an upload, given its name."""
_KEY: Final = Field[Value](ID.name)
_OLDEST_FIRST: Final[Sort] = (Ascending(CHANGED_AT),)
_TYPE: Final = Field[str]("type")
_ABOVE: Final = Field[tuple[str, ...]]("above")
_UNKNOWN_ERROR: Final = "Exception"


def listened(conditions: Collection[Condition]) -> Mapping[str, frozenset[str]]:
    """Return the statuses that triggers wait for, per task; their writers push to `notice`."""
    check_types(conditions, CONDITIONS, "a condition")
    found: dict[str, frozenset[str]] = {}
    for each in conditions:
        for kind, of in sources(each):
            statuses = _ENDS.get(kind, _statuses(each) if kind is Kind.STATUS else frozenset())
            if statuses:
                found[of] = found.get(of, frozenset()) | statuses
    return found


_ENDS: Final = {Kind.RESULT: frozenset({SUCCESS}), Kind.EXCEPTION: frozenset({FAILED})}


def _statuses(condition: Condition) -> frozenset[str]:
    if isinstance(condition, OnStatus):
        return condition.statuses
    parts: tuple[Condition, ...] = getattr(condition, "conditions", ())
    return frozenset[str]().union(*map(_statuses, parts))


def happened(record: Document) -> tuple[tuple[Context, ...], tuple[int, ...]]:
    """Return what happened to an invocation at the versions in its notice, in order.

    Also return the versions whose status the record (fields `READ`) does not remember.
    """
    check_type(record, Document, "a record")
    of, task, arguments, at = needed(record, ID), needed(record, TASK), _arguments(record), record.get(PAYLOAD)
    statuses = {each.version: each.status for each in history(record)}
    versions = needed(record, NOTICE)
    check_tuple(versions, int, "a version")
    found: list[Context] = []
    for version in sorted({*versions} & statuses.keys()):
        found.append(StatusContext(task, of, version, statuses[version], arguments, at))
        if statuses[version] == SUCCESS:
            result = _value(record.get(RESULT))
            found.append(ResultContext(task, of, version, result, arguments, at, record.get(RESULT_PAYLOAD)))
        if statuses[version] == FAILED:
            error = record.get(ERROR)
            kind = _UNKNOWN_ERROR if error is None else error.get(_TYPE) or _UNKNOWN_ERROR
            above = () if error is None else error.get(_ABOVE) or ()
            found.append(ExceptionContext(task, of, version, kind, arguments, at, above))
    return tuple(found), tuple(sorted({*versions} - statuses.keys()))


def _arguments(record: Document) -> Document:
    return _values(record.get(ARGUMENTS) or Document())


def _values(held: Document) -> Document:
    return Document(tuple((name, _value(value)) for name, value in held.items))


def _value(held: Value) -> Value:
    if not isinstance(held, str):
        return held
    try:
        return from_json(json.loads(held))
    except (ValueError, RecursionError, Misuse):
        return held


def is_whole(context: Context) -> bool:
    if not isinstance(context, (StatusContext, ResultContext, ExceptionContext)):
        return True
    return context.arguments_at is None and (not isinstance(context, ResultContext) or context.result_at is None)


async def whole(context: Context) -> Context:
    """Replace references to uploads by their content: a program."""
    if not isinstance(context, (StatusContext, ResultContext, ExceptionContext)):
        return context
    if isinstance(context, ResultContext) and context.result_at is not None:
        context = attrs.evolve(context, result=_value(await _text(context.result_at)), result_at=None)
    if context.arguments_at is None:
        return context
    arguments = _value(await _text(context.arguments_at))
    check_type(arguments, Document, "arguments that were uploaded")
    return attrs.evolve(context, arguments=_values(arguments), arguments_at=None)  # type: ignore[arg-type]


async def _text(upload: str) -> str:
    text = await Call(UPLOADED, (upload,), catches=True)
    check_type(text, str, "the text of an upload")
    return text  # type: ignore[return-value]


def _judges(condition: Condition, task: str) -> bool:
    match condition:
        case OnStatus(of, _, arguments) | OnException(of, _, arguments):
            return of == task and not isinstance(arguments, Everything)
        case OnResult(of, result, arguments):
            return of == task and not (isinstance(result, Everything) and isinstance(arguments, Everything))
        case Composite(_, conditions):
            return any(_judges(each, task) for each in conditions)
        case _:
            return False


# --- the program ----------------------------------------------------------------------------------


@final
@attrs.frozen
class NotNoticed:
    """A record that could not be processed, and why in one line."""

    key: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.key!r}: {self.reason}"


@final
@attrs.frozen
class NoticePass:
    """The result of a pass.

    Attributes:
        is_whole: Whether every request had a reply; if not, the next pass continues.
        skipped: What could not be noticed or decided, for example because a user's filter raised.
    """

    is_whole: bool
    noticed: int = 0
    skipped: tuple[NotNoticed, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Noticer:
    """Makes occurrences of status changes. Invariant: 1 <= page <= FOUND_MAX."""

    conditions: tuple[Condition, ...]
    records: str = "invocations"
    occurrences: str = "occurrences"
    definitions: str = "triggers"
    page: int = PAGE

    def __attrs_post_init__(self) -> None:
        check_tuple(self.conditions, CONDITIONS, "a condition")
        check_collection(self.records)
        check_collection(self.occurrences)
        check_collection(self.definitions)
        check_int(self.page, "a number of records", 1, FOUND_MAX)

    @property
    def indexes(self) -> Indexes:
        """The index that finds records with a notice, however many have none."""
        return {self.records: (Index(_OLDEST_FIRST, Exists(NOTICE)),)}

    async def run(self) -> NoticePass:
        """Run one pass; Refused if the store refused a read that it depends on."""
        looked, skipped = 0, tuple[NotNoticed, ...]()
        after: tuple[Value, ...] = ()
        try:
            while True:
                found = await find_all(
                    self.records, Exists(NOTICE), limit=self.page, fields=READ, sort=_OLDEST_FIRST, after=after
                )
                now = await StoreTime()
                looked += len(found)
                if found:
                    others = await self._others()
                    skipped += await self._settle(found, others, now)
                if len(found) < self.page:
                    return NoticePass(is_whole=True, noticed=looked, skipped=skipped)
                after = cursor(found[-1], _OLDEST_FIRST)
        except (Ambiguous, NotApplied, NotDurable):
            return NoticePass(is_whole=False, noticed=looked, skipped=skipped)

    async def _others(self) -> frozenset[str]:
        """Return the tasks that other versions' triggers wait for. Read AFTER the records (NO5)."""
        found = await find_every(self.definitions)
        mine = frozenset([condition_id(each) for each in self.conditions])
        theirs = tuple([each for each in map(definition_of, found) if not mine.issuperset(each.condition_ids)])
        return frozenset([task for each in theirs for task in each.tasks])

    async def seen(self, record: Document, now: Instant) -> tuple[tuple[Occurrence, ...], tuple[NotNoticed, ...]]:
        """Return the occurrences of an invocation, and what could not be decided: a program."""
        contexts, forgotten = happened(record)
        key = needed(record, _KEY)
        skipped = [NotNoticed(key, f"nothing tells any more what version {each} was") for each in forgotten]
        occurrences: tuple[Occurrence, ...] = ()
        for context in contexts:
            is_judged = any(_judges(each, context.source[1]) for each in self.conditions)
            answer = noticed(self.conditions, await whole(context) if is_judged else context, now)
            occurrences += tuple([attrs.evolve(each, context=context) for each in answer.occurrences])
            skipped += [NotNoticed(key, f"condition {which[:8]}: {why}") for which, why in answer.unknown]
        return occurrences, tuple(skipped)

    async def _settle(
        self, found: tuple[Document, ...], others: frozenset[str], now: Instant
    ) -> tuple[NotNoticed, ...]:
        """Insert the occurrences of a page, THEN remove its notices, except those of NO5 (NO1)."""
        occurrences, read, skipped = await self._page(found, now)
        for start in range(0, len(occurrences), PAGE):
            await _kept(self.occurrences, occurrences[start : start + PAGE])
        await self._forget(tuple([each for each in read if needed(each, TASK) not in others]))
        return skipped

    async def _page(
        self, found: tuple[Document, ...], now: Instant
    ) -> tuple[tuple[Occurrence, ...], tuple[Document, ...], tuple[NotNoticed, ...]]:
        """Return the occurrences of a page, the readable records, and what could not be noticed."""
        occurrences: dict[str, Occurrence] = {}
        read: list[Document] = []
        skipped: list[NotNoticed] = []
        for record in found:
            try:
                some, untold = await self.seen(record, now)
            except (Misuse, Refused) as wrong:  # a bad record must not block the others; its notice stays
                why = (
                    wrong.what
                    if isinstance(wrong, Misuse)
                    else f"what was uploaded of it cannot be read: {wrong.reason}"
                )
                skipped.append(NotNoticed(needed(record, _KEY), why))
                continue
            occurrences.update((each.id, each) for each in some)
            read.append(record)
            skipped += untold
        return tuple(occurrences.values()), tuple(read), tuple(skipped)

    async def _forget(self, read: tuple[Document, ...]) -> None:
        removals = tuple([update_one(self.records, _unheard(each), Remove(NOTICE)) for each in read])
        if removals:
            await bulk_update(*removals)


async def _kept(collection: str, occurrences: tuple[Occurrence, ...]) -> None:
    """Insert occurrences; one too large for a document is inserted without its contents."""
    try:
        await insert_many(collection, *map(stored_occurrence, occurrences))
    except Refused:
        pass
    else:
        return
    for each in occurrences:
        try:
            await insert_new(collection, stored_occurrence(each))
        except Refused:
            bare = attrs.evolve(each, context=without_contents(each.context))
            await insert_new(collection, stored_occurrence(bare))


def _unheard(record: Document) -> Filter:
    """Match the record if its notice is unchanged."""
    return AllOf((Eq(ID, needed(record, ID)), Eq(NOTICE, needed(record, NOTICE))))
