"""A Kafka in this process, for tests: a broker, a network that fails as it is told, and a client with aiokafka's manners.

Whatever runs on `kafka_ports.Client` runs on it, unchanged; on `tidegate_adapters.testing.event_loop`'s event loop a run takes
milliseconds, and its seed decides the order of all that happens. From the broker outwards:

    `requests`      what is asked, and with which codes it may be answered
    `membership`    a consumer group, as Kafka 4.1 keeps it
    `logs`          a partition's log, and what producers have written to it
    `transactions`  who writes under a transactional id, and what belongs to its transaction
    `positions`     what groups have committed, and what transactions are to commit
    `broker`        all of it
    `connection`    how long requests take, and what becomes of them
    `subscription`  what a consumer subscribed to, was assigned, and has read
    `coordinator`   how it stays a member of its group, and commits
    `fetcher`       what it reads ahead
    `consumer`      the client that reads
    `producer`      the one that writes: aiokafka's own

It has the manners of aiokafka 0.14 and of Kafka 4.1, those that hurt included: each module says which. Tests run the same
scripts of calls against it and against the real ones (`tests/integration/test_kafka_agreement.py`); where they differ, this
one is wrong.
"""

from tidegate_adapters.testing.kafka.broker import SimulatedBroker
from tidegate_adapters.testing.kafka.connection import Network, Outcome
from tidegate_adapters.testing.kafka.consumer import SimulatedConsumer
from tidegate_adapters.testing.kafka.logs import Log
from tidegate_adapters.testing.kafka.producer import SimulatedProducer
from tidegate_adapters.testing.kafka.requests import CODES

__all__ = ["CODES", "Log", "Network", "Outcome", "SimulatedBroker", "SimulatedConsumer", "SimulatedProducer"]
