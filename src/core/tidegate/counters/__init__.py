"""A counter that counts each increment exactly once, with any network faults.

In reading order:
    counter     the two steps of an increment and the sweep, as decisions on one record
    increments  the programs that send them: `increment` and `sweep`
"""
