"""Short path of `tidegate_adapters.runtime.driver`."""

from tidegate_adapters.runtime.driver import *  # noqa: F403  everything public
