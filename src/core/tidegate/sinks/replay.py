"""Which dead letters are delivered again, where to, and up to which one that is done.

A replay reads the partitions of a dead-letter topic, one after the other, up to the end that each
had when the replay began:

    letters read -> plan -> deliveries -> settle -> commit, read on, or stop

An output goes to its sink again, with its key; a record goes to its topic, as it was. The letter
stays in the topic. What has been replayed is committed for a consumer group of the replay: a
position, and beside it the letters replayed beyond the position
(`tidegate.consumer.committing.commit_metadata`). So a replay of some letters leaves the others to a later one.

Laws
    RY1  A letter is committed as replayed only after its delivery was acknowledged.
    RY2  A letter that is committed as replayed is not delivered again. A replay that dies repeats
         at most what it delivered since its last commit: the letters of one plan.
    RY3  A letter whose delivery failed stays: no position passes it, and no letter is written for
         it. The replay stops there, or leaves it behind if the rules say so.
    RY4  Only selected letters are delivered, at most `limit` of them.
    RY5  A record is sent as it was, without the headers of the letter, to its own partition: what
         fails again makes a letter of the same size. An output keeps its content and its key.
    RY6  A replay without a selection, failures and limit leaves no letter behind.

Known not to work
    - Two replays for one group at a time: both deliver the letters that they find.
    - A re-queued record that fails again has a new letter, at the end of the topic. A replay does
      not read it, since it began before; the next one does.
    - If the letters replayed beyond the position do not fit into the commit, the replay stops. The
      next one repeats those of the last plan that did not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, unique
from types import NoneType
from typing import TypeAlias, final

import attrs

from tidegate.consumer.committing.commit_metadata import Alphabet, Partial, Survey, decoded, encoded, surveyed
from tidegate.consumer.offsets.watermark import OffsetTracker, acknowledged, completed, delivered, is_open
from tidegate.model.errors import Misuse
from tidegate.model.instants import WALL, Instant
from tidegate.model.records import Record, Send
from tidegate.model.values import check_int, check_tuple, check_type, check_types
from tidegate.sinks.dead_letters import DeadLetter, RefusedOutput, Undecodable, decode


@final
@attrs.frozen(kw_only=True)
class Selection:
    """The letters that are meant: those for which every condition holds.

    Attributes:
        topics: The topics of the source record; empty for all, as below.
        partitions: Its partitions.
        offsets: Its offset is within one of these, from the first to the last.
        sinks: The sinks that refused an output.
        error: In the class or the text of the error, in any case; empty for all.
        since: The group gave up then or later; None for all.
        until: The group gave up before.
    """

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    offsets: tuple[tuple[int, int], ...] = ()
    sinks: frozenset[str] = frozenset()
    error: str = ""
    since: Instant | None = None
    until: Instant | None = None

    def __attrs_post_init__(self) -> None:
        for names, what in ((self.topics, "topics"), (self.partitions, "partitions"), (self.sinks, "sinks")):
            check_type(names, frozenset, what)
        check_tuple(self.offsets, (tuple,), "a range of offsets")
        for each in self.offsets:
            check_int(len(each), "the length of a range of offsets", 2, 2)
            check_int(each[0], "an offset", 0)
            check_int(each[1], "the last offset of a range", each[0])
        check_type(self.error, str, "a text of an error")
        for time in (self.since, self.until):
            check_type(time, (Instant, NoneType), "a time")
            if time is not None and time.clock != WALL:
                raise Misuse(f"{time} is not of the clock of letters", todo="use Instant(..., WALL)")

    def has(self, letter: DeadLetter) -> bool:
        """Whether the letter is meant."""
        check_type(letter, DeadLetter, "a dead letter")
        record, text = letter.record, f"{letter.error or ''}\n{letter.message or ''}"
        return (
            (not self.topics or record.topic in self.topics)
            and (not self.partitions or record.partition in self.partitions)
            and (not self.offsets or any(first <= record.offset <= last for first, last in self.offsets))
            and (not self.sinks or (letter.output is not None and letter.output.sink in self.sinks))
            and self.error.casefold() in text.casefold()
            and (self.since is None or letter.at - self.since >= 0)
            and (self.until is None or letter.at - self.until < 0)
        )


@final
@attrs.frozen(kw_only=True)
class ReplayRules:
    """What a replay does. Invariant: 1 <= limit.

    Attributes:
        selection: The letters that are meant.
        requeues: Whether the records of outputs are sent to their topic, too.
        limit: The most letters that are delivered; None for no limit.
        skips_failed: Whether the replay goes on after a failed delivery.
    """

    selection: Selection = Selection()
    requeues: bool = False
    limit: int | None = None
    skips_failed: bool = False

    def __attrs_post_init__(self) -> None:
        check_type(self.selection, Selection, "a selection")
        check_type(self.requeues, bool, "whether records of outputs are re-queued")
        check_type(self.skips_failed, bool, "whether failed letters are left behind")
        if self.limit is not None:
            check_int(self.limit, "a limit of letters", 1)


# --- verdicts -------------------------------------------------------------------------------------


@final
@unique
class Leave(Enum):
    """The letter is not delivered."""

    REPLAYED = "it is replayed already"
    OTHER = "it is not selected"
    UNREADABLE = "it is not a dead letter"


Choice: TypeAlias = RefusedOutput | Send | Leave
"""An output to deliver to its sink, a record to send to its topic, or neither."""


@final
@unique
class Stop(Enum):
    """Why a replay ends before the last letter."""

    FAILED = "a letter could not be delivered"
    LIMIT = "the limit is reached"
    FULL = "the replayed letters between others are too many for one commit"


@final
@attrs.frozen
class ReplayState:
    """The letters read of a partition, of which those replayed are done; and the number of letters
    given to be delivered, in all partitions.
    """

    tracker: OffsetTracker
    begun: int = 0
    survey: Survey | None = attrs.field(default=None, eq=False, repr=False)


@final
@attrs.frozen
class Progress:
    """The state after deliveries, the position and metadata to commit BEFORE more letters are
    delivered, if anything is new, and why the replay ends, if it does.
    """

    state: ReplayState
    commit: tuple[int, str] | None
    stop: Stop | None


# --- decisions ------------------------------------------------------------------------------------


def begin(committed: tuple[int, str] | None, start: int, end: int, begun: int = 0) -> ReplayState:
    """The state with which a replay of a partition begins; it reads from `tracker.frontier` on.

    Args:
        committed: The position and metadata of the replay's group; ignored if the position is beyond
            the end, which is one of another topic of this name.
        start: The first offset of the partition.
        end: One past its last offset.
        begun: The number of letters that the replay has delivered in other partitions.
    """
    check_type(committed, (tuple, NoneType), "a position and its metadata")
    if committed is not None:
        check_int(len(committed), "the length of a position and its metadata", 2, 2)
        check_int(committed[0], "a position", 0)
        check_type(committed[1], str, "metadata")
    check_int(begun, "a number of letters", 0)
    check_int(start, "the start of a log", 0)
    check_int(end, "the end of a log", start)
    position, text = (start, "") if committed is None or committed[0] > end else committed
    return ReplayState(decoded(text, position=position, end=end).tracker, begun)


def choose(rules: ReplayRules, letter: DeadLetter | Undecodable) -> Choice:
    """What is done with a letter that is not replayed yet."""
    check_type(rules, ReplayRules, "the rules of a replay")
    check_type(letter, (DeadLetter, Undecodable), "a dead letter")
    if isinstance(letter, Undecodable):
        return Leave.UNREADABLE
    if not rules.selection.has(letter):
        return Leave.OTHER
    if letter.output is not None and letter.output.content is not None and not rules.requeues:
        return letter.output
    record = letter.record
    return Send(record.topic, record.value, record.key, record.headers, record.partition)


def plan(
    rules: ReplayRules, state: ReplayState, read: Sequence[Record]
) -> tuple[ReplayState, tuple[tuple[int, Choice], ...]]:
    """What is done with each of these letters, by offset; those beyond the limit are left out.

    Args:
        rules: The rules.
        state: The state before; all earlier plans are settled.
        read: The next records of the dead-letter topic, in the order of their offsets.
    """
    check_type(rules, ReplayRules, "the rules of a replay")
    check_type(state, ReplayState, "the state of a replay")
    check_types(read, Record, "a record")
    tracker, begun = state.tracker, state.begun
    choices: list[tuple[int, Choice]] = []
    for stored in read:
        if rules.limit is not None and begun >= rules.limit:
            break
        tracker = delivered(tracker, (stored.offset,))
        choice = choose(rules, decode(stored)) if is_open(tracker, stored.offset) else Leave.REPLAYED
        begun += not isinstance(choice, Leave)
        choices.append((stored.offset, choice))
    return ReplayState(tracker, begun, state.survey), tuple(choices)


def settle(rules: ReplayRules, state: ReplayState, delivered_: Sequence[int], failed: int) -> Progress:
    """What follows the deliveries of a plan, once each has ended.

    Args:
        rules: The rules.
        state: The state of the plan.
        delivered_: The offsets of acknowledged deliveries.
        failed: The number of failed ones.
    """
    check_type(rules, ReplayRules, "the rules of a replay")
    check_type(state, ReplayState, "the state of a replay")
    check_types(delivered_, int, "an offset")
    check_int(failed, "a number of failures", 0)
    tracker = completed(state.tracker, delivered_)
    survey = surveyed(tracker, state.survey)
    found = encoded(survey, alphabet=Alphabet.ASCII)
    stop = None
    if failed and not rules.skips_failed:
        stop = Stop.FAILED
    elif isinstance(found, Partial):
        stop = Stop.FULL
    elif rules.limit is not None and state.begun >= rules.limit:
        stop = Stop.LIMIT
    commit = (found.position, found.text) if delivered_ else None
    return Progress(ReplayState(acknowledged(tracker, found.position), state.begun, survey), commit, stop)
