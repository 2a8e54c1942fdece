"""Random inputs for the commands that need no lab: each ends soon, and never with a traceback."""
