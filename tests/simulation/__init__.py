"""A simulator of runs: the real runner, graders, limits and ledger, on a virtual clock and a scripted network, by seed.

One seed decides everything: the submissions, the faults of the network, the order in which processes advance, and when
one of them crashes, is paused or interrupted. So a fault that one seed shows is repeated with
`python -m tests.simulation SEED`. `scenario` draws a scenario from a seed, `driver` plays it, and `invariants` says
what must hold; `virtual_loop`, `operating_system` and `network` stand in for the world. `breakages` breaks the library
on purpose, to show that the invariants notice.
"""
