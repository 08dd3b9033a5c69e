"""An in-process document store without a server."""

from tidegate_adapters.embedded.store import Embedded as Embedded
