"""Aligns a judge with human labels, and keeps the result only if other labels prove a gain in accuracy.

`align` is the complete procedure. To add an optimizer by name, add it to `OPTIMIZERS` in
`trust/alignment/optimizers.py`.
"""
