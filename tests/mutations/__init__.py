"""Faults that the tests must find; run.py tries them."""
