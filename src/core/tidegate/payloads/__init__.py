"""How is a payload stored that is larger than a document may be, and than memory?

    upload_records   the record of a key, the writes that replace its payload, and which chunks may be removed
    uploads          the programs that do so: put, find, read, get, delete, sweep

Read them in this order.

Beside them: `laws`, `scenarios`, `specimens`, `strategies`.
"""
