"""Judges against people on public data: how often recorded judges agree with human labels, and a judge of your own.

`sets` reads the data, and `figures` computes the tables of docs/judges.md and of the command `benchmark`.
"""
