"""Compiling: what stands between the recorder's graphs and the compile backends.

==============  =============================================================
settings        what ``mortice.compile`` was asked for, checked and frozen
registry        the backends: built in, registered in this process, installed
declaration     what a backend says of itself; its options checked
backends        those built in
front           ``mortice.compile``
segment         a captured graph -> something that runs it
joint           the forward and backward graph of a captured graph in one
partition       cutting it in two, by minimum cut
function        the autograd node that runs a compiled backward
tracked         its call, spelt out
again           gradients of gradients
examples        inputs as tracing needs them; what was asked of numbers and sizes
explain, page   reports as text and as an HTML page
==============  =============================================================
"""
