"""What a graph becomes: values over index expressions."""
