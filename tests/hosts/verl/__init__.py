"""Tests of `verl_reward` with the reward managers of the real verl: `make test-host-verl`."""
