"""The cells of crons: up to which instant each was evaluated, and its pending instants."""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

from tidegate.model.documents import ID, Field, Put
from tidegate.model.effects import Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import StoreTime, UpdateOne, update_one
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.retries.schedule import Broken, Due, FirstSeen, Never, NextAfter, ScheduleCell, TooLate, closed, look
from tidegate.triggers._documents import Skipped, Write, at_version, by_ids, readable, skipped_for, write_all
from tidegate.triggers.conditions import OnCron, condition_id
from tidegate.triggers.trigger import Occurrence, ticks
from tidegate.triggers.trigger_documents import loaded_cell, stored_cell

Cells: TypeAlias = tuple[tuple[str, ScheduleCell], ...]


@final
@attrs.frozen
class CronCells:
    """The cells of some crons; `next_after` is the port of `schedule`."""

    crons: tuple[OnCron, ...]
    next_after: NextAfter = attrs.field(eq=id)
    collection: str

    async def look(self) -> tuple[Skipped, ...]:
        if not self.crons:
            return ()
        now = await StoreTime()
        cells, skipped = await self.read()
        spoiled = frozenset([each.key for each in skipped])
        moved: tuple[Write, ...] = ()
        for cron in self.crons:
            name = condition_id(cron)
            if name in spoiled:
                continue
            before = dict(cells).get(name)
            try:
                after, reason = self._advance(cron, before, now)
                if before is None and after is not None:
                    await insert_new(self.collection, stored_cell(name, after))
            except (Refused, Misuse) as trouble:
                skipped += (skipped_for(name, trouble),)
                continue
            if before is not None and after is not None and after != before:
                moved = (*moved, (name, self._move(name, before, after)))
            if reason is not None:
                skipped += (Skipped(name, reason),)
        _, refused = await write_all(moved)
        return (*skipped, *refused)

    def _advance(
        self, cron: OnCron, before: ScheduleCell | None, now: Instant
    ) -> tuple[ScheduleCell | None, str | None]:
        """Return the cell after all due instants, and why the cron has no further ones, if so."""
        cell = before
        while True:
            match look(cron.schedule, self.next_after, cell, now):
                case FirstSeen(first):
                    return first, None
                case Due(_, after) | TooLate(_, after):
                    cell = after
                case Broken(reason):
                    return cell, reason
                case Never():
                    return cell, f"the cron {cron.schedule} names no instant any more"
                case _:
                    return cell, None

    def _move(self, name: str, before: ScheduleCell, after: ScheduleCell) -> UpdateOne:
        """Write a cell as one version, however many instants it passes."""
        doc = stored_cell(name, attrs.evolve(after, version=before.version + 1))
        puts = tuple(Put(Field[object](key), value) for key, value in doc.without(ID).items)
        return update_one(self.collection, at_version(name, before.version), *puts)

    async def read(self) -> tuple[Cells, tuple[Skipped, ...]]:
        found = await by_ids(self.collection, tuple([condition_id(cron) for cron in self.crons]))
        return readable(lambda doc: (needed(doc, Field[str](ID.name)), loaded_cell(doc)), found)

    async def pending(self) -> tuple[Occurrence, ...]:
        cells, _ = await self.read()
        return self.ticks(cells)

    def ticks(self, cells: Cells) -> tuple[Occurrence, ...]:
        there = dict(cells)
        names = [(cron, condition_id(cron)) for cron in self.crons]
        return tuple(each for cron, name in names if name in there for each in ticks(cron, there[name]))

    def closing(self, dropped: frozenset[str], cells: Cells) -> tuple[Write, ...]:
        found: list[Write] = []
        for name, cell in cells:
            after = closed(cell, [each.seen for each in self.ticks(((name, cell),)) if each.id in dropped])
            if after != cell:
                found.append((name, self._move(name, cell, after)))
        return tuple(found)
