"""What is registered and cannot be used: a number, and what is not there."""

THING = 7
