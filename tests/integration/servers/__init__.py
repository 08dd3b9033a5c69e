"""The real servers of the integration tests, on free loopback ports and in temporary folders.

They end with the test run, however that dies. `python -m tests.integration.servers` downloads and
tries each.
"""

from .kafka import KafkaServer, create_topic
from .mongod import MongoServer

__all__ = ["KafkaServer", "MongoServer", "create_topic"]
