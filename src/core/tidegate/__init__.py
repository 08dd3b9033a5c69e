"""tidegate: the coordination of services on Kafka and MongoDB as values that can be model-checked."""

__version__ = "0.1.0"
