"""What may be tried again, and when?

    backoff   when a failed attempt is repeated, and when it is given up: delays, jitter, policies
    failures  whether an effect that failed may be tried again at all: the rule of effects
    pauses    how long a program waits before it tries again
    polling   when to look again at a source that does not call back
    schedule  when a cron is due, and which of the instants that were missed are made up for

Read them in this order; `pauses`, `polling` and `schedule` stand alone. The `__all__` of each module are its public names.

Beside them: `laws`, `strategies`.
"""
