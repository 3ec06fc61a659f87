"""Aligns a judge with labels, and keeps the result only if labels that it has not seen prove a gain.

`align` is the whole procedure. `label_sets` and `splits` make the three parts of the labels, `optimizers` lists what
may search for a better judge (`student`, `label_metric`), under one limit (`calls`, `counted_model`). `keeping` decides
by `paired_accuracy` on the test set, and `attempts` counts how often that was looked at.

To add an optimizer by name, add it to `OPTIMIZERS` in `optimizers`.
"""
