"""Calls without Python: a compiled graph as a builtin function, and a replay as one.

``runner`` writes machine code for one graph: read addresses, allocate, launch, wrap. ``replay``
turns a replay plan (guards, inputs, results: data) into a program of 64-bit words, which one
native function, the machine, interprets: a new plan costs no compilation.
"""
