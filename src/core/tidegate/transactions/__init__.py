"""Several documents changed together, once or not at all.

In reading order:
    transacting  runs any program in a transaction: `in_transaction`
    transfers    moves an amount from one document to another: `transfer`
"""
