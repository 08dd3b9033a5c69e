"""Prometheus registries, scrapes and metric families."""

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
    """A collector of the metrics of a running application; without arguments `families` describes
    an idle one.
    """

    def __init__(self, families: Callable[..., Iterator[Metric]], glance: Callable[[], Any], tallies: Any) -> None:
        self._families, self._glance, self._tallies = families, glance, tallies

    def describe(self) -> Iterator[Metric]:
        return self._families()

    def collect(self) -> Iterator[Metric]:
        return self._families(self._glance(), self._tallies)


@contextmanager
def shown_in(registry: CollectorRegistry, collector: Collector) -> Iterator[None]:
    """Register the collector until the block ends; any thread may call it.

    Raises:
        Misuse: The registry has another one of its kind.
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
    encoder, content_type = choose_encoder(accept)
    return content_type, encoder(registry)


def gauge(name: str, about: str, labels: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Metric:
    """A gauge family; each row holds its label values, then a number."""
    return _filled(GaugeMetricFamily(name, about, labels=labels), rows)


def counter(name: str, about: str, labels: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Metric:
    """A counter family, named with the suffix `_total`."""
    return _filled(CounterMetricFamily(name, about, labels=labels), rows)


def handler_seconds(name: str, took: Mapping[str, Handled], label: str = "task") -> Metric:
    """A histogram of handler durations, by label."""
    family = HistogramMetricFamily(name, "How long handlers took.", labels=(label,))
    for key, each in took.items():
        counts = accumulate(each.counts)
        family.add_metric((key,), [*zip((*map(str, BOUNDS_S), "+Inf"), counts, strict=True)], each.total_s)
    return family


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[tuple[object, ...]]) -> Metric:
    for *of, value in rows:
        family.add_metric([*map(str, of)], float(str(value)))
    return family
