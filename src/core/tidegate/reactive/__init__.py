"""Tasks that follow documents: what runs when a document changes, and what keeps a change from being lost?

Read the modules in this order:

    snapshot         did anything that is watched change?
    debounce         when does what keeps changing come to be looked at?
    task_records     what is known of a document's task?
    tasks            what becomes of that record: planned, claimed, run, finished?
    orphans          is a record of any use still?
    evolution        a task is deployed with another definition: what has to be done over?
    change_stream    what does the leader do with a stream of changes, and how far may its resume token advance?
    reconciliation   which documents have to be looked at although no change reports them?
    task_documents   a task record as a document, and back
    plan_queries     which documents does a planner have to look at? asked of the store
    fetching         what is due is claimed, and its runs begin
    completion       runs end, or their leases are renewed
    reactive_task    the programs of a task: look, work, clean up
    worker           what runs of reactive tasks are to a worker (`tidegate.work`), and what they have come to
    deployments      the program that a version of an application begins to lead with
    reconciler       the program of a reconciliation
    sweeper          the program of a sweep for orphans
    stream_records   the programs that store how far the consumer of a stream is
    record_queries   which records does somebody mean, and in which order are they listed?
    story            what has become of a document's task, as a time line
    pausing          the programs that say whether handlers of a task are begun at all
    desk             the programs of operators: list, count, run again, pause
    mongodash_records   the program that takes over the records of mongodash, once

Beside them: `laws`, `scenarios`, `specimens`, `strategies`.

`tidegate_adapters.reactive` joins them to an application.
"""
