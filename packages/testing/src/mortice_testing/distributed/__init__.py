"""Tests of distributed backends with real processes."""
