"""Aligns a judge with human labels, and keeps the result only if labels that it has not seen prove a gain.

`align` is the whole procedure. To add an optimizer by name, add it to `OPTIMIZERS` in `trust/alignment/optimizers.py`.
"""
