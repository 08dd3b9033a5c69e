"""How are several documents changed together, once or not at all?

    transacting  any program in a transaction, and what is known of it in the end: `in_transaction`
    transfers    an amount moves from one document to another, with an entry: `transfer`

Read them in this order.

Beside them: `laws`, `scenarios`, `specimens`. It is a room of its own, for whatever writes may be carried in a transaction, and
so rooms above it may ask for one.
"""
