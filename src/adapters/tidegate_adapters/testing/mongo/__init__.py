"""An in-process MongoDB for tests: a replica set, a network with chosen failures, and pymongo's own
client.

    async def main(random: Random) -> None:
        replica_set = SimulatedReplicaSet(random)
        network = Network(replica_set, random, strike=lambda client, command: ...)
        async with network.client("a") as client:
            answer = await AsyncKit(client, "shop").insert("orders", {"_id": 7})
            ...
        assert [str(each) for each in replica_set.history] == [...]

    tidegate_adapters.testing.event_loop.run(main, seed=7)

The client is a real `AsyncMongoClient`, so code that takes one runs unchanged: `AsyncMongo`,
`ChangeStream`, `AsyncKit`, leases, payloads and user code. Unknown commands raise `NotUnderstood`.
On the loop of `tidegate_adapters.testing.event_loop` a run takes milliseconds, and its seed decides
the order and duration of all events. From the set outwards:

    `replica_set`   data, majority, primary and history
    `reading`       MongoDB filters and updates, parsed
    `cursors`       cursors and change streams
    `commands`      replies to commands
    `connection`    the network and the client

The explored world applies operations (`tidegate.sim.world.world`) and transactions
(`tidegate.sim.world.transactions`). Tests send the same scripts to it and, through a black pipe, to a
real server (`tests/integration/test_simulated_mongo.py`); where they differ, the simulation is
wrong.

Needs `tidegate[mongo]`. It uses private parts of pymongo, a client's pool and monitor; tested with
4.20.
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
