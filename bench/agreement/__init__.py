"""Compares the same jobs on real labs and in the simulator: `python -m bench.agreement`."""
