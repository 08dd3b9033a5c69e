"""Leases, locks and leader election.

In reading order:
    lease       a lease with a fencing token, as decisions on one record
    claim_lock  a lock that is an array of claims: the holder, and stale claims
    election    a candidate for leadership, as a reducer on a lease
    leader      the program that executes a candidate's commands on a document store
"""
