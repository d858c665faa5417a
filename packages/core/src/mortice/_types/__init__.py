"""What tensors are made of: dtypes, promotion, devices, layouts, size and stride arithmetic."""
