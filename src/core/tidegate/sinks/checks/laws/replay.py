"""The laws of `tidegate.sinks.replay` as predicates over a replay, or several in a row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegate.consumer.committing.commit_metadata import decoded
from tidegate.consumer.offsets.watermark import done_offsets
from tidegate.model.records import Record, Send
from tidegate.sinks.dead_letters import DeadLetter
from tidegate.sinks.replay import Choice, Leave, ReplayRules


def replayed(committed: tuple[int, str] | None, letters: Collection[int], end: int) -> frozenset[int]:
    """The letters that a commit holds for replayed."""
    if committed is None:
        return frozenset()
    position, text = committed
    beyond = done_offsets(decoded(text, position=position, end=end).tracker)
    return frozenset(offset for offset in letters if offset < position or offset in beyond)


def commits_what_was_acknowledged(held: Collection[int], acknowledged: Collection[int]) -> bool:
    """Laws RY1 and RY3: `held` are the letters that a commit holds for replayed."""
    return {*held} <= {*acknowledged}


def repeats_little(deliveries: Mapping[int, int], uncommitted: Sequence[Collection[int]]) -> bool:
    """Law RY2, where the text of each commit was whole.

    `deliveries` counts the acknowledged deliveries of each letter, `uncommitted` has the letters
    that each replay that died delivered since its last commit.
    """
    return all(count <= 1 + sum(offset in each for each in uncommitted) for offset, count in deliveries.items())


def delivers_what_is_selected(
    rules: ReplayRules, letters: Mapping[int, DeadLetter | None], choices: Sequence[tuple[int, Choice]]
) -> bool:
    """Law RY4, for all choices of one replay."""
    chosen = [offset for offset, choice in choices if not isinstance(choice, Leave)]
    is_selected = all((letter := letters[offset]) is not None and rules.selection.has(letter) for offset in chosen)
    return is_selected and (rules.limit is None or len(chosen) <= rules.limit)


def is_as_it_was(letter: DeadLetter, choice: Choice, source: Record) -> bool:
    """Law RY5: `source` is the record that the letter was made of."""
    if isinstance(choice, Send):
        return choice == Send(source.topic, source.value, source.key, source.headers, source.partition)
    return isinstance(choice, Leave) or choice == letter.output


def leaves_none(letters: Collection[int], deliveries: Mapping[int, int]) -> bool:
    """Law RY6."""
    return {*letters} <= deliveries.keys()
