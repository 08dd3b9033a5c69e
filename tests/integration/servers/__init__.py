"""The real servers of the integration tests.

Everything listens on the loopback interface alone, on free ports, keeps its data in a temporary folder, and ends with
the test run, however that ends. `python -m tests.integration.servers` downloads what is needed and tries each once.
"""

from .kafka import KafkaServer, create_topic
from .mongod import MongoServer

__all__ = ["KafkaServer", "MongoServer", "create_topic"]
