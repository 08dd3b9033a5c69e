"""What becomes of the task record of a document?

A reactive task is work that follows a document: when what is watched of it changes (`tidegate.reactive.snapshot`), its
handler runs. For each document and task there is one record (`tidegate.reactive.task_records`). Planners look at
documents and write down what they see, workers take what is due, run the handler, and write down how it ended; nobody
waits for anybody.

    plan       a planner has seen the document: it is new, it has changed, it no longer matches, it is gone
    claim      a worker takes what is due, or what another has let lapse; there the attempt is counted. A planner may claim what it
               makes due for a worker beside it, in the write that says so (`claim_planned`)
    begin      the worker has seen the document under its claim: whether the handler runs, and with what
    renew      the lease goes on
    finalise   the run has ended: it succeeded, it failed, or it asks to be deferred
    reset      an operator, or a new version of the handler, wants another run

Read `vocabulary` first (what a decision is asked with, and what it answers), then `planning` and `running`.

Each decision is taken on a record as it was read, and what it writes is guarded by that record's id, version, owner and
token (its guard): optimistic concurrency control after Kung and Robinson 1981. Versions and tokens only grow, and ids are
never used again, so nothing that is guarded can be mistaken for something that came back (A-B-A). The token is a fencing
token (Burrows 2006): one who lost a lease and does not know it cannot write.

Caller's duties
    - Carry a write out only if the record is still as its guard says, in one step (compare-and-set). If it is not, read
      again and decide again.
    - Look after each change: read the record BEFORE the document, both as a majority has them. Then whatever is written
      was seen after all that the record says; the other way round, a look from the past undoes a later one. Where the
      server answers which documents differ (`snapshot.differs`), those whose record is processed are looked at as well.
    - Send a claim to `begin` BEFORE the handler runs. What `begin` adopts is the claim from then on.
    - `now` is the store's time: whoever judges due times and leases by it agrees with all others.

Laws
    RE1  No change is lost: what is seen to have changed is due, or will be once its run has ended, with what was seen;
         and a look at what is processed makes a version, so that no run begins with what was there before that look.
    RE2  A run begins with what is there: the latest that was seen, and what its document says at that time.
    RE3  What changed while it was processed runs again: the end of that run completes nothing and fails nothing.
    RE4  A stale run changes nothing: only the claim that holds the record renews it, begins under it and finalises it.
    RE5  Attempts are counted at claim: each one counts unless it ends in a deferral, and nothing else does.
    RE6  A-B-A is noticed: each write makes one version, each claim one token, and what comes back is another change.
    RE7  Every write is guarded by what it was decided on: id, version, owner and token.
    RE8  Nobody takes what is not due, what is held, or what is finished; what is due can be taken.
    RE9  What no longer matches is completed, and its handler is not called: it is due once more, and `begin` sees it.
    RE10 A change is due when its debounce says, also where its handler was deferred. Only where changes do not reset, a retry
         may be due later, and stays so.
    RE11 A failure is tried again no earlier than the policy says, and where the policy gives up it has failed.
    RE12 A failing streak began with its first failure; a success, a reset, and a change that resets end it.
    RE13 The history holds the last ends of runs: all but deferrals, those that never came back included.
    RE14 Instants are written in whole milliseconds, as MongoDB keeps them: what has happened is rounded down, what is
         due is rounded up.
    RE15 What is claimed in the write that plans it is due and held by nobody, and becomes what that write and a claim after it
         would have made, one version earlier.

Things that do not work
    Keeping the snapshot of a run that could not begin, for what is watched could not be computed: it fails, and when its
    document is again what it was, that is not a change, and nobody runs it.
    Completing a record at the look that sees its document leave: another look, at what has come back since, may have
    found nothing changed and written nothing. So a look only ever makes things due, and `begin` decides under the claim.
    Leaving a record alone that is processed, where nothing has changed: its run may have seen the document before that
    look, and begin with what is gone. So such a look makes a version.

Known not to work
    - A change and its opposite between two looks leave no trace.
    - A handler that changes what it watches starts itself again, as often as it does that; also where it fails, or kills
      its process, and the policy has given up.
    - While a run is not renewed for longer than its lease, another may run beside it. Its writes to this record are
      refused; what the handler itself writes elsewhere needs the token as well.
    - A record that was written and whose reply was lost looks as if another had written it: read it again, and its token
      (of a claim) or its history (of an end) shows who did.
    - What was given up because it could not be computed stays failed when it then no longer matches; nothing is due.
    - Tokens are those of one record. Of a document that lost its record and got another they begin again, so what is
      fenced outside compares the id as well.
"""

from tidegate.reactive.tasks.planning import plan, reset
from tidegate.reactive.tasks.running import begin, claim, claim_of, claim_planned, finalise, renew
from tidegate.reactive.tasks.vocabulary import (
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
