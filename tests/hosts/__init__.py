"""Tests of the adapters to evaluation and training frameworks, each with the real framework."""
