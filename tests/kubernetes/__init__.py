"""Tests with a Kubernetes API server and clabernetes: run them with `make test-kubernetes`."""
