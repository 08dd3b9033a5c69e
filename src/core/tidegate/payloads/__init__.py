"""How is a payload stored that is larger than a document may be?

    chunking         a payload becomes a manifest and chunks, and is joined again
    payload_records  the record with its manifest, the writes that replace it, and which chunks may be removed
    replacement      the programs that do so: they replace, read and collect

Read them in this order. The `__all__` of each module are its public names.

Beside them: `laws`, `scenarios`, `specimens`, `strategies`.
"""
