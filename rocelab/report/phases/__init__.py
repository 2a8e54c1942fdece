"""Renderings of a drill of jobs."""
