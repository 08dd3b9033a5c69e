"""Short path of `tidegate_adapters.kit.leases`."""

from tidegate_adapters.kit.leases import *  # noqa: F403  everything public
