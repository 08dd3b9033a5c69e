"""Short path of `tidegate_adapters.kit.array_push_lock`."""

from tidegate_adapters.kit.array_push_lock import *  # noqa: F403  everything public
