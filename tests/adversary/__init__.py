"""A suite that tries to make rocelab report a wrong number: `make adversary` (tests/README.md)."""
