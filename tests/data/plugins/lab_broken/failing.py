"""A module whose import fails."""

raise ImportError("libexotic is not there")
