"""A MongoDB in this process, for tests: a replica set in memory, a network that fails as it is told, and pymongo's own client.

    async def main(random: Random) -> None:
        replica_set = SimulatedReplicaSet(random)
        network = Network(replica_set, random, strike=lambda client, command: Outcome.LOST_REPLY if ... else None)
        async with network.client("a") as client:
            answer = await AsyncKit(client, "shop").insert("orders", {"_id": 7, "customer": "ann"})
            ...
        assert [str(each) for each in replica_set.history] == [...]

    tidegate_adapters.testing.event_loop.run(main, seed=7)

The client is a real `AsyncMongoClient`, so whatever takes one runs on it, unchanged: `AsyncMongo`, `ChangeStream`, `AsyncKit`, the
leases and payloads of this package, and your own code as far as it sends commands that are known here; others are
`NotUnderstood`. On `tidegate_adapters.testing.event_loop`'s event loop a run takes milliseconds, and its seed decides the order of all that
happens, how long messages take, a majority and an election. From the set outwards:

    `replica_set`   what is written, what a majority has of it, who is primary, what has happened
    `reading`       MongoDB's words, read back into those of the core
    `cursors`       cursors, and change streams
    `commands`      what each command is answered
    `connection`    the network, and the client

What an operation does to documents is the world that is explored (`tidegate.sim.world`), and what a transaction sees and keeps
is, too (`tidegate.sim.transactions`). Tests send the same scripts to it and
to a real server by a black pipe (`tests/integration/test_simulated_mongo.py`); where they differ, this one is wrong.

Needs `tidegate[mongo]`; of pymongo, seen to work with 4.20, it uses parts that are not promised: the pool and the monitor of a client.
"""

from tidegate.model.errors import MissingExtra

try:
    from tidegate_adapters.testing.mongo.commands import Code
    from tidegate_adapters.testing.mongo.connection import Network, Outcome
    from tidegate_adapters.testing.mongo.reading import NotUnderstood
    from tidegate_adapters.testing.mongo.replica_set import Change, SimulatedReplicaSet
except ModuleNotFoundError as missing:
    raise MissingExtra("tidegate_adapters.testing.mongo", "mongo", missing) from missing

__all__ = ["Change", "Code", "Network", "NotUnderstood", "Outcome", "SimulatedReplicaSet"]
