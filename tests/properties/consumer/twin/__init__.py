"""The partition and the consumer as they were before their stages: what `tidegate.consumer.partition` must agree with."""
