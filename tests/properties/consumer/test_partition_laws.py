"""The laws of a partition, for any events in any order."""

from __future__ import annotations

from hypothesis import settings
from tests.properties.consumer.partition_course import check_all
from tests.properties.consumer.partition_helpers import ALL, right
from tests.properties.consumer.partition_plain import check_plain


def test_whatever_comes_in_whatever_order_the_laws_hold() -> None:
    """Laws P1 to P7 of the plain mode, and agreement with a simple observer."""
    check_plain(right, ALL, settings(max_examples=100))


def test_whatever_comes_in_any_mode_the_laws_hold() -> None:
    """Laws P1 to P12 and P15, for all hooks, orders, rules, policies, metadata and drains."""
    check_all(right, ALL, 250)
