"""Payloads larger than a document, and than memory.

In reading order:
    upload_records   the record of a key, the writes that change it, and the removable chunks
    uploads          the programs: put, find, read, get, delete, sweep
"""
