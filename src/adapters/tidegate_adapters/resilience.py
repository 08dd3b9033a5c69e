"""Short path of `tidegate_adapters.kit.resilience`."""

from tidegate_adapters.kit.resilience import *  # noqa: F403  everything public
