"""Registries of Prometheus: what is shown in one, for as long as it is there, and what a scrape is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.model.errors import MissingExtra, Misuse

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.metrics", "metrics", missing) from missing

__all__ = ["Collector", "CollectorRegistry", "exposed", "shown_in"]


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
