"""A document store in this process, with no server."""

from tidegate_adapters.embedded.store import Embedded as Embedded
