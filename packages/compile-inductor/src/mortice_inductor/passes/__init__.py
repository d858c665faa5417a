"""Passes over values: simplify, fuse, schedule, plan memory."""
