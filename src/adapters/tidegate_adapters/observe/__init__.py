"""What a service shows of itself: logs, metrics, spans, recordings, and the HTTP server for them."""
