"""Tensors: storage, host memory, device arrays, the Tensor class and what needs no plug-in."""
