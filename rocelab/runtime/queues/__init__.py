"""Queues of switch ports: made when a lab comes up, read while it runs.

`engine` makes them, `reading` reads them; `htb` is the tree of both engines, `marker` and `red` are
the engines.
"""
