"""Several documents changed together, once or not at all.

In reading order:
    transacting  runs any program in a transaction: `in_transaction`
    transfers    moves an amount from one document to another: `transfer`
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.transactions.transacting import in_transaction
    from tidegate.transactions.transfers import Transfer, Transferred, transfer
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Transfer", "Transferred", "in_transaction", "transfer",
]  # fmt: skip
