"""Tests of `openrlhf_reward` with the modules of the real OpenRLHF: `make test-host-openrlhf`."""
