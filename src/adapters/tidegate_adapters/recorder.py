"""Short path of `tidegate_adapters.observe.recorder`."""

from tidegate_adapters.observe.recorder import *  # noqa: F403  everything public
