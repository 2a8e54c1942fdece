"""The same jobs on real labs and in the simulator, side by side: `python -m bench.agreement`."""
