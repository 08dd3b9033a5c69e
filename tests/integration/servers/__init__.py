"""The integration tests' servers on loopback ports and temporary folders; they end with the
tests.
"""

from .kafka import KafkaServer, create_topic
from .mongod import MongoServer

__all__ = ["KafkaServer", "MongoServer", "create_topic"]
