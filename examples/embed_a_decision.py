"""Embed a decision in a service that has a client of its own: which offset may be committed?

The service keeps its Kafka client, its threads and its retries. Only the question "up to where is it safe to commit?" is
handed to tidegate, as a value that it keeps per partition. Run it: it needs no broker.
"""

from __future__ import annotations

from tidegate import OffsetTracker, offset_to_commit, track_committed, track_completed, track_delivered


class Partition:
    """What your consumer loop keeps for each partition that it is assigned."""

    def __init__(self, committed: int) -> None:
        self.tracker = OffsetTracker(committed)

    def fetched(self, offsets: list[int]) -> None:
        """Call it with a whole fetch, before any of it is worked on."""
        self.tracker = track_delivered(self.tracker, offsets)

    def finished(self, offset: int) -> int | None:
        """Call it when a worker is done, in whatever order; answers the position to commit, if there is a new one."""
        self.tracker = track_completed(self.tracker, [offset])
        return offset_to_commit(self.tracker)

    def committed(self, position: int) -> None:
        """Call it when the broker has accepted that position, and not before: until then it is answered again."""
        self.tracker = track_committed(self.tracker, position)


def main() -> None:
    """Five records come, with a gap in the numbering, and are finished out of order."""
    partition = Partition(committed=40)
    partition.fetched([40, 41, 42, 45, 46])
    for offset in (41, 42, 40, 46, 45):
        position = partition.finished(offset)
        print(f"finished {offset}: " + ("nothing to commit yet" if position is None else f"commit {position}"))
        if position is not None:  # here your client commits; what it answers is for you to await
            partition.committed(position)


if __name__ == "__main__":
    main()
