"""Tests with the real MLflow, which `make test-host-mlflow` runs in an environment of its own."""
