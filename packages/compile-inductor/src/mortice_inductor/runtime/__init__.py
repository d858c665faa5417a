"""Runs plans: tables of words, memory, native code, foreign operators."""
