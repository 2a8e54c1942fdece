"""The names of runtimes that more than their own modules know: `netns` is the default of
`--runtime`."""

from __future__ import annotations

DEFAULT_RUNTIME = "netns"
ADOPTED = "adopted"
"""The runtime of a lab that others deployed, which no command makes."""
