"""Communication hooks for ``DistributedDataParallel.register_comm_hook``."""
