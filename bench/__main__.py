"""`python -m bench`: measures the studies that are named, or those of `make bench`."""

from __future__ import annotations

from bench.campaign import command

if __name__ == "__main__":
    command.run()
