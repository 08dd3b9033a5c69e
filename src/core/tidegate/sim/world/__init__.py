"""The state of the world: cells, documents, transactions, faults and clocks."""
