"""How far a judge can be trusted: agreement with people, corrected scores, comparisons of runs, and release gates.

All intervals are closed forms: the same data always give the same figures, and nothing draws random numbers. A figure
that is undefined is None, never 0.

To add a figure, write its formula in the module of its kind, with its source: `intervals` (means and rates), `kappa`
(agreement beyond chance), `calibration` (figures that people's labels correct), `betting` (gates that look after each
submission), `planning` (how many labels are needed).
"""
