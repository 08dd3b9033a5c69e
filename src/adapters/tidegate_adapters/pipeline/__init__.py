"""A pipeline from Kafka through tasks to sinks."""
