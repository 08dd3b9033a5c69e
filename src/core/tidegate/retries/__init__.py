"""Retries, polling and schedules: what may be tried again, and when.

In reading order:
    backoff   the delay before the next attempt, and when to give up: delays, jitter, policies
    failures  whether a failed effect may be tried again
    pauses    how long a program waits between attempts
    budget    a limit on the number of retries of one client
    repeating runs a program again from its start until it succeeds
    resending sends one effect again until its outcome is known
    polling   when to poll a source that sends no notifications
    spread    which due records a worker claims while other workers poll too
    schedule  when a cron is due, and which missed instants it makes up for
"""
