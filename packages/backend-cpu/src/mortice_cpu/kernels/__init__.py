"""CPU kernels by operator family: functions of Tensors, in a dict ``KERNELS`` per module."""
