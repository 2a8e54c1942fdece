"""An engineer who tries to catch the kit in a wrong number: `make adversary` (tests/README.md)."""
