"""Compiling: what stands between the recorder's graphs and the compile backends.

===============  ============================================================
settings         what ``mortice.compile`` was asked for, checked and frozen
registry         the backends: built in, registered in this process, installed
declaration      what a backend says of itself; its options checked
backends         those built in
front            ``mortice.compile``
control          functions that are left out, and those that are trusted
segment          a captured graph -> something that runs it
examples         inputs as tracing needs them; what was asked of numbers and sizes
plain            the state of dispatch in which graphs are traced
tracing          into operators below autograd
joint            the forward and backward graph of a captured graph in one
partition        cutting it in two; costs: what it weighs; mincut: how
function         the autograd node that runs a compiled backward; form: what its call knows
tracked          its call, spelt out
again            gradients of gradients
stages           the work on one graph, timed and kept; show: logged and dumped
kept             what all that came to, on disk for the next process
explain, page    reports as text and as an HTML page
decompositions   operators in terms of others; undecomposed: which never are
export           exported programs
===============  ============================================================
"""
