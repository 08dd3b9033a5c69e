"""An in-process Kafka for tests: a broker, a network with chosen failures, and a client that
behaves like aiokafka's.

Code for `tidegate_adapters.kafka.client.Client` runs on it unchanged. On the loop of
`tidegate_adapters.testing.event_loop` a run takes milliseconds, and its seed decides the order of
events. From the broker outwards:

    `requests`      requests and their error codes
    `membership`    consumer groups
    `logs`          a partition's log and its producers' state
    `transactions`  transactional producers
    `positions`     committed and pending offsets
    `broker`        the server
    `connection`    delays and failures
    `subscription`  topics, assignment and positions of a consumer
    `coordinator`   membership and commits of a consumer
    `fetcher`       prefetching
    `consumer`      the consumer
    `producer`      aiokafka's producer

It has the quirks of aiokafka 0.14 and Kafka 4.1; each module lists them. Tests run the same scripts
against it and the real ones (`tests/integration/test_kafka_agreement.py`); where they differ, the
simulation is wrong.
"""

from tidegate_adapters.testing.kafka.broker import SimulatedBroker
from tidegate_adapters.testing.kafka.connection import Network, Outcome
from tidegate_adapters.testing.kafka.consumer import SimulatedConsumer
from tidegate_adapters.testing.kafka.logs import Log
from tidegate_adapters.testing.kafka.producer import SimulatedProducer
from tidegate_adapters.testing.kafka.requests import CODES

__all__ = ["CODES", "Log", "Network", "Outcome", "SimulatedBroker", "SimulatedConsumer", "SimulatedProducer"]
