"""What may be tried again, and when?

    backoff   when a failed attempt is repeated, and when it is given up: delays, jitter, policies
    failures  whether an effect that failed may be tried again at all: the rule of effects
    pauses    how long a program waits before it tries again
    budget    whether there are too many retries already
    repeating a program that may be done again, begun anew until it is answered
    resending one effect sent until it is known what became of it
    polling   when to look again at a source that does not call back
    spread    which of what is due a worker claims, where others look at the same time
    schedule  when a cron is due, and which of the instants that were missed are made up for

Read them in this order; `pauses`, `budget`, `polling`, `spread` and `schedule` stand alone.

Beside them: `laws`, `strategies`.
"""
