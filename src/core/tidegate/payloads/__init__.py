"""Payloads larger than a document, and than memory.

In reading order:
    upload_records   the record of a key, the writes that change it, and the removable chunks
    uploads          the programs: put, find, read, get, delete, sweep
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.payloads.upload_records import Damaged, Found, UploadRecord
    from tidegate.payloads.uploads import PayloadStore, Stored, delete, find, get, put, read, sweep
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Damaged", "Found", "PayloadStore", "Stored", "UploadRecord", "delete", "find", "get", "put", "read", "sweep",
]  # fmt: skip
