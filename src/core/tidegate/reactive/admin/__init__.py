"""Requests of operators, and the import of mongodash records."""
