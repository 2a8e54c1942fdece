"""What writes the pages of the reference that the code is the source of."""
