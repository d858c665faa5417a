"""A toy device for mortice."""
