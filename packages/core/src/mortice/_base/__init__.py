"""Knobs, errors and logging: the floor everything else stands on."""
