"""Short path of `tidegate_adapters.testing.black_pipe`."""

from tidegate_adapters.testing.black_pipe import *  # noqa: F403  everything public
