"""Unmodified programs on the servers of a running lab: their ranks, processes and connections."""
