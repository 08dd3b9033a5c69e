"""tidegate: the coordination of services on Kafka and MongoDB as values that can be model-checked.

Each decision, program and reducer is a module of its own (`tidegate.consumer.watermark`, `tidegate.invocations.transition`, ...), the
simulator is `tidegate.sim`, the laws are `tidegate.laws`, and whatever touches the world is `tidegate_adapters`.
"""

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse, TidegateError

__all__ = ["ExitCode", "Misuse", "TidegateError", "__version__"]

__version__ = "0.1.0"
