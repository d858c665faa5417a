"""Reverse-mode differentiation: graph nodes, the engine, grad modes, hooks, custom functions."""
