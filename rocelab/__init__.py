"""One package: all code. Its folders are the steps from a lab file to a result."""
