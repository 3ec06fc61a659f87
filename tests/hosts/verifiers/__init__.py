"""Tests of the judge plugin with the real verifiers: `make test-host-verifiers`."""
