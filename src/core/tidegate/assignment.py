"""What one consumer does with its partitions: it composes `partition`, shares out the executors, and keeps the gate.

Each partition is a reducer of its own (`tidegate.partition`); an event goes to the one that it names. What they share is
decided here:
    - executors: so many handlers run over all partitions. A slot that becomes free goes to the next partition in turn
      that has a record waiting.
    - load: the records that were delivered and are not finished, wherever they are. The gate (`tidegate.backpressure`)
      closes when the load reaches `high` and opens when it has fallen to `low`. While it is closed nothing is polled.

`polling` says which partitions to poll now. It names them one by one (selective polling), which throws nothing away that
was fetched ahead; only where nothing may be polled are partitions paused, so that the consumer can go on asking for
records, and stay a member, without being given any.

Laws
    AS1  No more than `executors` handlers run.
    AS2  The load is below `high` before anything is polled; so it never exceeds `high` by more than one batch.
    AS3  A free executor does not wait: while fewer than `executors` handlers run, no flowing partition has one queued.
    AS4  Partitions do not see each other's events, generations or failures.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.backpressure import Gate, Plan, Watermarks, decide, plan
from tidegate.errors import Misuse
from tidegate.instants import Duration
from tidegate.partition import (
    DRAIN,
    RUNNING_MAX,
    SPAN_MAX,
    Event,
    Owned,
    Phase,
    Processor,
    RoomMade,
    State,
    TopicPartition,
    Unassigned,
    Wish,
)
