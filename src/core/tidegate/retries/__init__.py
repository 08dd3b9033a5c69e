"""Retries, polling and schedules: what may be tried again, and when.

In reading order:
    backoff         the delay before the next attempt, and when to give up
    failures        whether a failed effect may be tried again
    attempt_delays  how long a program waits between attempts
    budget          a limit on the number of retries of one client
    idempotent      runs a program again from its start until it succeeds
    retrying        sends one effect again until its outcome is known
    polling         when to poll a source that sends no notifications
    contention      which due records a worker claims while other workers poll too
    schedule        when a cron is due, and which missed instants it makes up for
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.retries.attempt_delays import Pauses
    from tidegate.retries.backoff import Cron, Exponential, Fixed, GiveUp, Linear, Policy, Retry, delay_after
    from tidegate.retries.failures import Knowledge, Operation, decide_failure
    from tidegate.retries.idempotent import repeat
    from tidegate.retries.polling import PollingBounds
    from tidegate.retries.retrying import send
    from tidegate.retries.schedule import Schedule
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Cron", "Exponential", "Fixed", "GiveUp", "Knowledge", "Linear", "Operation", "Pauses", "Policy",
    "PollingBounds", "Retry", "Schedule", "decide_failure", "delay_after", "repeat", "send",
]  # fmt: skip
