"""What every adapter may use: errors and exit codes, redaction, safe logging, decorators, threads, times."""
