"""Answers computed in code: checks and automatic metrics."""
