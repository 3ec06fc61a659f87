"""Tests of the OpenTelemetry adapter, with the in-memory exporters of its SDK."""
