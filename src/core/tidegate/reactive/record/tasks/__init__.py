"""Decide what happens to the task record of a document.

A reactive task follows documents: its handler runs when a watched value changes
(`tidegate.reactive.record.snapshot`). Each document has one record per task
(`tidegate.reactive.record.task_records`). Planners read documents and write what they see. Workers claim
due records, run the handler and write its end. Neither waits for the other.

    plan       a planner saw the document: new, changed, not matching or gone
    claim      a worker takes a record that is due or whose lease lapsed; this counts the attempt.
               A planner may claim for a worker beside it in the write that plans (`claim_planned`)
    begin      the worker read the document under its claim: does the handler run, and with what
    renew      extend the lease
    finalise   the run succeeded, failed or asked to be deferred
    reset      an operator, or a new version of the handler, requests another run

Read `vocabulary` first (inputs and verdicts), then `planning` and `running`.

Each decision takes a record as it was read. The record's guard protects its write: id, version,
owner and token (optimistic concurrency control, Kung and Robinson 1981). Versions and tokens only
grow and ids are never reused, which excludes A-B-A. The token is a fencing token (Burrows 2006): a
worker that lost its lease unawares cannot write.

Caller's duties
    - Write only if the record still matches its guard, in one compare-and-set. Otherwise read and
      decide again.
    - After each change read the record BEFORE the document, both with majority read concern. The
      document is then as new as the record. In the other order a stale read undoes a later one.
      Where the server finds the documents that differ (`snapshot.differs`), also read those whose
      record is processed.
    - Send a claim to `begin` BEFORE the handler runs. `begin` may adopt another claim; use that
      one.
    - `now` is the store's time, so that all processes agree on due times and leases.

Laws
    RE1  No change is lost: a seen change is due, or will be once its run has ended, with what was
         seen. A look at a processed record makes a version, so that no run begins with older
         values.
    RE2  A run begins with the latest values seen, and with what its document says at that time.
    RE3  A change during a run runs again: the end of that run completes nothing and fails nothing.
    RE4  A stale run changes nothing: only the claim that holds the record renews, begins and
         finalises it.
    RE5  Attempts are counted at claim: each one counts unless it ends in a deferral, and nothing
         else does.
    RE6  A-B-A is detected: each write makes one version, each claim one token, and a value that
         returns is another change.
    RE7  Every write is guarded by what it was decided on: id, version, owner and token.
    RE8  No claim takes a record that is not due, is held or is finished; a due record can be taken.
    RE9  A record that no longer matches completes without its handler: it is due once more, and
         `begin` sees it.
    RE10 A change is due when its debounce says, also where its handler was deferred. Only where
         changes do not reset, a retry may be due later, and stays so.
    RE11 A failure is retried no earlier than the policy says; where the policy gives up, the record
         has failed.
    RE12 A failing streak begins with its first failure; a success, a reset, and a change that
         resets end it.
    RE13 The history holds the last ends of runs: all but deferrals, lapsed runs included.
    RE14 Instants are whole milliseconds, as in MongoDB: past ones round down, due ones round up.
    RE15 A record claimed in the write that plans it is due and not held. It becomes what that write
         and a later claim would have made, one version earlier.

Rejected designs
    Keep the snapshot of a run that could not begin because a watched value could not be computed.
    The run fails; a document that returns to its old value then shows no change and never runs.
    Complete a record when a planner sees its document leave. Another planner may have seen the
    document return, found no change and written nothing. So planners only make records due, and
    `begin` decides under the claim.
    Skip a processed record whose document has not changed. Its run may have read the document
    earlier and begin with old values. So such a look makes a version.

Known limits
    - A change and its reversal between two looks leave no trace.
    - A handler that changes its watched values restarts itself each time, even where it fails or
      kills its process and the policy has given up.
    - A run that outlives its lease may overlap another. The record refuses its writes; the
      handler's own writes elsewhere need the token as well.
    - A write whose reply was lost looks like another's write. Read the record again: its token (of
      a claim) or its history (of an end) shows the writer.
    - A record given up because it could not be computed stays failed when it no longer matches;
      nothing is due.
    - Tokens restart when a document loses its record and gets another. External fencing must
      compare the id as well.
"""

from tidegate.reactive.record.tasks.planning import plan, reset
from tidegate.reactive.record.tasks.running import begin, claim, claim_of, claim_planned, finalise, renew
from tidegate.reactive.record.tasks.vocabulary import (
    ERROR_MAX,
    Adopt,
    BeginVerdict,
    CannotRun,
    Claim,
    Claimed,
    ClaimVerdict,
    Deferred,
    Failed,
    GiveUp,
    Go,
    Gone,
    HandlerOutcome,
    InsertRecord,
    Lapsed,
    Leave,
    Matching,
    NextAttempt,
    NotMatching,
    PlanVerdict,
    Seen,
    Succeeded,
    TaskRules,
    TryAgain,
    UpdateRecord,
    Wait,
    Why,
    WhyNot,
)

__all__ = [
    "ERROR_MAX", "Adopt", "BeginVerdict", "CannotRun", "Claim", "ClaimVerdict", "Claimed", "Deferred", "Failed",
    "GiveUp", "Go", "Gone", "HandlerOutcome", "InsertRecord", "Lapsed", "Leave", "Matching", "NextAttempt",
    "NotMatching", "PlanVerdict", "Seen", "Succeeded", "TaskRules", "TryAgain", "UpdateRecord", "Wait", "Why", "WhyNot",
    "begin", "claim", "claim_of", "claim_planned", "finalise", "plan", "renew", "reset",
]  # fmt: skip
