"""An in-process Kafka for tests: a broker, a network with chosen failures, and a client that
behaves like aiokafka's.

Code for `tidegate_adapters.kafka.client.Client` runs on it unchanged. On the loop of
`tidegate_adapters.testing.event_loop` a run takes milliseconds, and its seed decides the order of
events. From the broker outwards:

    `requests`      requests and their error codes
    `membership`    a consumer group, as Kafka 4.1 keeps it
    `logs`          a partition's log and its producers' state
    `transactions`  producers of transactional ids and their transactions
    `positions`     committed offsets, and those pending in transactions
    `broker`        the server
    `connection`    delays and failures of requests
    `subscription`  topics, assignment and positions of a consumer
    `coordinator`   a consumer's membership and commits
    `fetcher`       prefetching
    `consumer`      the consumer client
    `producer`      aiokafka's own producer

It behaves like aiokafka 0.14 and Kafka 4.1, quirks included; each module lists them. Tests run the
same scripts against it and the real ones (`tests/integration/test_kafka_agreement.py`); where they
differ, the simulation is wrong.
"""

from tidegate_adapters.testing.kafka.broker import SimulatedBroker
from tidegate_adapters.testing.kafka.connection import Network, Outcome
from tidegate_adapters.testing.kafka.consumer import SimulatedConsumer
from tidegate_adapters.testing.kafka.logs import Log
from tidegate_adapters.testing.kafka.producer import SimulatedProducer
from tidegate_adapters.testing.kafka.requests import CODES

__all__ = ["CODES", "Log", "Network", "Outcome", "SimulatedBroker", "SimulatedConsumer", "SimulatedProducer"]
