"""Who holds it, who leads, and for how long?

    lease       a lease with a fencing token, as decisions on one record
    claim_lock  a lock that is an array of claims: who holds it, and which claim is stale
    election    a candidate that wants to lead, as a reducer on a lease
    leader      the program that carries a candidate's commands out on a document store

Read them in this order.

Beside them: `laws`, `scenarios`, `specimens`, `strategies`.
"""
