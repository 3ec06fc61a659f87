"""Tests with the real trainers of TRL, in an environment of their own: `make test-training`."""
