"""Specimens: small faulty variants of the programs here, each a bug that real systems have had.

The simulator must find each one, and the real program must pass the same scenario completely. A law that no specimen
breaks proves nothing.
"""
