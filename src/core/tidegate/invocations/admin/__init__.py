"""Requests of operators, and their queries."""
