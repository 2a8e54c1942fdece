"""`python -m bench.validation`, the command of the study."""

from __future__ import annotations

from bench.campaign import command

if __name__ == "__main__":
    command.run("validation")
