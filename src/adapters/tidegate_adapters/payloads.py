"""Short path of `tidegate_adapters.kit.payloads`."""

from tidegate_adapters.kit.payloads import *  # noqa: F403  everything public
