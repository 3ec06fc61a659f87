"""Tests with the real Inspect AI, which `make test-host-inspect` runs in an environment of its own."""
