"""One consumer of a group and its partitions: what to commit, what to work on next, and how to
stop.

Read the decisions first, then the machines that combine them:
    `watermark`        Which offset may be committed, and which beyond it are done.
    `explanation`      Which record blocks it, and what a crash would cost.
    `commit_metadata`  The offsets done beyond the position, as a string committed with it.
    `beginning`        Where a partition begins, by its commit and the range of its log.
    `backpressure`     When to pause and resume fetching, and for which partitions.
    `drain`            What happens to work in flight when a partition is revoked.
    `fanout`           When a record, and when a window, is settled.
    `commands`         The commands and events of a partition.
    `batching`         How a handler of batches answers the requests of a window.
    `order`            Which record is next.
    `handling`         Which handlers run, and which records deviate.
    `outstanding`      Unanswered requests to user code about windows.
    `windowed`         Which windows are in work.
    `commits`          Which position is committed now, and with which metadata.
    `commit_pacing`    When the commits of all partitions are sent, and which share a request.
    `holding`          Whether a partition is held by its own limits.
    `partition_settings`  Limits, order and failure policy of a partition.
    `partition_state`  The state of a partition.
    `partition`        One partition, from its assignment to its release.
    `commit_answers`   The effect of each kind of commit failure.
    `transactions`     Exactly once: positions and answers in one transaction.
    `outliving`        Abandoned user code that has not ended.
    `kept`             Records done in a lost partition, which count when it returns.
    `consumer`         One consumer: its partitions, executors and gate.
    `worker`           The top machine: a consumer that stops on request and leaves its group.
    `health`           Which partitions do not move, and why.

A worker has a consumer, and a consumer has partitions; each passes events down to the next. The
group, which assigns partitions, is the broker's; `tidegate.sim.servers.group` simulates it.

The checks are in `laws`, `strategies`, `scenarios` and `specimens`.
"""
