"""From records through tasks to sinks: what follows each request of a partition.

Read in this order: `effects` (hooks, outputs, rules, and what programs ask for), `programs` (one
for each request), `tasks` and `identity` (ids of tasks, keys of outputs).

Records come and are committed as `tidegate.consumer` says; windows, tasks and retries are those of
`tidegate.consumer.fanout`; a sink is tried as `tidegate.sinks.outbox` says.
"""
