"""Operators by family: a YAML file declares, the Python file beside it holds the bodies.

What is true of an operator whatever the device stands here: its schema, shape rule, gradient,
decomposition. What a device does with it stands in that device's package, in a module of the
family's name.
"""
