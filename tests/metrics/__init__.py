"""The metrics as a real Prometheus has them: `make test-metrics`."""
