from tidegate_adapters.simulated_mongo.connection import Network, Outcome
from tidegate_adapters.simulated_mongo.commands import Code
from tidegate_adapters.simulated_mongo.replica_set import SimulatedReplicaSet
__all__=["Network","Outcome","Code","SimulatedReplicaSet"]
