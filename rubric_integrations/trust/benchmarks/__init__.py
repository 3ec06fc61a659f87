"""Measures the agreement of judges with human labels on public data sets, for recorded judges and for your own judge.

`sets` reads the data. `figures` computes the tables of docs/judges.md and of the command `benchmark`.
"""
