"""Queues of switch ports: made when a lab comes up, read while it runs.

`engine` makes them and `reading` reads them. `marker` and `red` are the two engines; `htb` is the
tree that both use.
"""
