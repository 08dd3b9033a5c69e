"""Registries of Prometheus: what is shown in one, for as long as it is there, what a scrape is answered, and families of
metrics made of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, final

from tidegate.model.errors import MissingExtra, Misuse
from tidegate_adapters.observe.handler_times import BOUNDS_S, Handled

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.kafka.metrics", "metrics", missing) from missing

__all__ = ["CollectorRegistry", "Families", "Metric", "counter", "exposed", "gauge", "handler_seconds", "shown_in"]


@final
class Families(Collector):
    """A collector of the metrics of an application, while it runs.

    Args:
        families: Makes the families of metrics from the two below; without arguments, those of an application that does not run.
        glance: Returns the current state; called from any thread.
        tallies: The counters.
    """

    def __init__(self, families: Callable[..., Iterator[Metric]], glance: Callable[[], Any], tallies: Any) -> None:
        self._families, self._glance, self._tallies = families, glance, tallies

    def describe(self) -> Iterator[Metric]:
        """The names of all metrics, without values."""
        return self._families()

    def collect(self) -> Iterator[Metric]:
        """All metrics with their current values."""
        return self._families(self._glance(), self._tallies)


@contextmanager
def shown_in(registry: CollectorRegistry, collector: Collector) -> Iterator[None]:
    """Show it there until the block ends.

    Args:
        registry: Where.
        collector: What shows it; it is asked from any thread.

    Raises:
        Misuse: The registry shows another one of its kind.
    """
    try:
        registry.register(collector)
    except ValueError as error:
        raise Misuse(
            "the registry shows another one already",
            why=str(error),
            todo="give each worker, and each app, a registry of its own",
        ) from None
    try:
        yield
    finally:
        registry.unregister(collector)


def exposed(registry: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """What a scrape is answered: the type of the content, and the content.

    Args:
        registry: What to show.
        accept: Which formats the scraper takes, as its header says.
    """
    encoder, content_type = choose_encoder(accept)
    return content_type, encoder(registry)


def gauge(name: str, about: str, labels: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Metric:
    """A family of what goes up and down.

    Args:
        name: Of the family.
        about: What it is.
        labels: The names of its labels.
        rows: The values of those, and then a number.
    """
    return _filled(GaugeMetricFamily(name, about, labels=labels), rows)


def counter(name: str, about: str, labels: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Metric:
    """Likewise of what only goes up; its name is shown with the suffix `_total`."""
    return _filled(CounterMetricFamily(name, about, labels=labels), rows)


def handler_seconds(name: str, took: Mapping[str, Handled], label: str = "task") -> Metric:
    """A histogram of how long handlers took, by task, or by what the label says."""
    family = HistogramMetricFamily(name, "How long handlers took.", labels=(label,))
    for key, each in took.items():
        counts = accumulate(each.counts)
        family.add_metric((key,), [*zip((*map(str, BOUNDS_S), "+Inf"), counts, strict=True)], each.total_s)
    return family


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[tuple[object, ...]]) -> Metric:
    for *of, value in rows:
        family.add_metric([*map(str, of)], float(str(value)))
    return family
