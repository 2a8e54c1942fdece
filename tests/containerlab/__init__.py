"""Tests with containerlab itself: run them with `make test-containerlab`."""
