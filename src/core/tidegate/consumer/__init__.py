"""One partition of a log, and one consumer of a group: what may be committed, what is worked on next, and how it ends.

Read the questions first, then the machines that put the answers together:
    `watermark`        Up to which offset may be committed, and what beyond it is done?
    `explanation`      What does it wait for, and what would a crash cost?
    `commit_metadata`  How does the next owner learn that, in the string that is committed with the position?
    `beginning`        Where does it begin, once it is known what is committed and how far its log goes?
    `backpressure`     Pause, resume or go on, and which partitions?
    `drain`            What becomes of work in flight when a partition is revoked?
    `fanout`           When is a record, and when is a window, settled?
    `commands`         The commands of a partition, and its events.
    `batching`         What is a batch to the windows of a partition?
    `order`            Which record is next?
    `handling`         Which handlers run, and which records are out of the ordinary?
    `outstanding`      What was user code asked for about windows, and has not answered?
    `windowed`         Which windows are in work?
    `commits`          Which position is committed now, and with which text?
    `commit_pacing`    When are the commits of all partitions sent, and which of them together?
    `holding`          Is the partition held on its own account?
    `partition_settings`  How much may a partition do at once, in which order, and what follows a failure?
    `partition_state`  What is known of a partition.
    `partition`        One partition, from its assignment to its release.
    `commit_answers`   What follows from a commit that has failed?
    `transactions`     How do the position and what handlers answer with come about together?
    `outliving`        User code that was given up, and has not ended.
    `kept`             What was done in a partition that was lost counts when it is back, if its records are the same.
    `consumer`         One consumer: its partitions, executors and gate.
    `worker`           The machine that runs: a consumer, until it is asked to stop and has left its group.
    `health`           Does each partition of it move, and if not, why?

So a worker has a consumer, and a consumer has partitions: an event of the one is handed down to the other. The group itself,
which deals out partitions, is the broker's; `tidegate.sim.group` simulates it.

Beside them stand their `laws`, `strategies`, `scenarios` and `specimens`.
"""
