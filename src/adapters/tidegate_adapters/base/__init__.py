"""Shared by all adapters: errors, exit codes, redaction, logging, decorators, threads, times."""
