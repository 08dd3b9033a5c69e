"""Observability of a service: logs, metrics, spans, recordings, and their HTTP server."""
