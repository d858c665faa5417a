"""From operators to values, by tables."""
