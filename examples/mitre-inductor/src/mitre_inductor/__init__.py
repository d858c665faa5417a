"""A toy device for mortice whose kernels are generated."""
