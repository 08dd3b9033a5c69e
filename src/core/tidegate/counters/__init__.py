"""How is an increment counted exactly once, whatever the network does?

    counter     the two steps of an increment and the sweep behind them, as decisions on one record
    increments  the programs that send them: `increment` and `sweep`

Read them in this order.

Beside them: `laws`, `scenarios`, `specimens`, `strategies`.
"""
