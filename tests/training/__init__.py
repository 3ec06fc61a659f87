"""Tests of the rewards for trainers, without the trainers; `tests/hosts` has those with the real ones."""
