"""The port of sinks, and the outbox that delivers to one."""
