"""The scenarios of `tidegate.transactions`: each is explored completely, and does what it is
expected to do.
"""
