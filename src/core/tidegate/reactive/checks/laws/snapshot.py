"""The laws of `tidegate.model.patches` and `tidegate.reactive.record.snapshot`."""

from __future__ import annotations

from tidegate.model.documents import Document, Field, Value, equal, exactly
from tidegate.model.patches import Patch, applied
from tidegate.reactive.record.snapshot import Changed, NotComputed, Projection, SnapshotVerdict, Unchanged


def only_the_same_have_no_difference(before: Value, after: Value, patch: Patch) -> bool:
    """Law N1: the patch between two values is empty exactly if they are the same."""
    return (not patch) == _is_same(before, after)


def a_patch_leads_to_what_came_after(after: Value, reached: Value) -> bool:
    """Law N2: applying the patch gives exactly the value after, key order included."""
    return _is_same(reached, after)


def the_unwatched_is_not_seen(
    before: Document, after: Document, projection: Projection, verdict: SnapshotVerdict
) -> bool:
    """Law N3: if each first field of a path is equal before and after, nothing has changed."""
    if projection.computed or not projection.paths:
        return True
    if not all(_is_alike(before, after, way[0]) for way, _ in projection.ways):
        return True
    return verdict == Unchanged()


def equal_documents_are_unchanged(before: Document, after: Document, verdict: SnapshotVerdict) -> bool:
    """Law N4: equal documents are unchanged for any watched paths."""
    return verdict == Unchanged() or not equal(before, after)


def no_watched_change_is_lost(
    before: Document, after: Document, projection: Projection, verdict: SnapshotVerdict
) -> bool:
    """Law N5: a difference in a field that is watched whole, or in a document that is, is a change."""
    if not projection.ways:
        return verdict != Unchanged() or equal(before, after)
    whole = [way[0] for way, computed in projection.ways if len(way) == 1 and computed is None]
    return verdict != Unchanged() or all(_is_alike(before, after, field) for field in whole)


def a_change_tells_all(before: Document | None, after: Document, verdict: SnapshotVerdict) -> bool:
    """Law N6: the patch of a change leads from the snapshot before, if any, to exactly the one
    after.
    """
    if isinstance(verdict, Changed):
        return _is_same(applied(verdict.patch, before), after)
    return before is not None


def a_snapshot_is_its_own(taken: Document | NotComputed, again: Document | NotComputed) -> bool:
    """Law N7: a snapshot of a snapshot is that snapshot, also with the paths in another order."""
    return isinstance(taken, Document) and isinstance(again, Document) and _is_same(taken, again)


def nothing_is_lost_in_json(value: Value, decoded: Value) -> bool:
    """Law N8: decoding gives exactly the encoded value."""
    return _is_same(value, decoded)


def a_digest_notices_the_same(by_snapshot: SnapshotVerdict, by_digest: SnapshotVerdict) -> bool:
    """Law N9: the digest gives the same answer, changed or unchanged."""
    return (by_snapshot == Unchanged()) == (by_digest == Unchanged())


def a_failure_is_reported(fails: bool, path: str, taken: Document | NotComputed) -> bool:
    """Law N10: if the function at a path fails, the answer names the path; otherwise there is a
    snapshot.
    """
    return isinstance(taken, NotComputed) and taken.path == path if fails else isinstance(taken, Document)


def the_server_sees_the_same(taken: Document, computed: Document, differs: bool, verdict: SnapshotVerdict) -> bool:
    """Law N11: MongoDB computes the snapshot, and finds a difference exactly if it has changed."""
    return _is_same(taken, computed) and differs == (verdict != Unchanged())


def _is_same(left: Value, right: Value) -> bool:
    return exactly(left) == exactly(right)


def _is_alike(left: Document, right: Document, field: Field[Value]) -> bool:
    """Whether a field is missing from both, or equal in both."""
    return left.has(field) == right.has(field) and equal(left.held(field), right.held(field))
