"""Operators in terms of others: the decompositions that stanzas name as ``decomposed.FAMILY.NAME``.

They run below autograd where a device has no kernel, and graphs are taken apart by them down to Core
ATen (``mortice.decompositions``). Each takes every argument of its schema and calls operators only, so
that it can be traced with symbolic sizes.
"""
