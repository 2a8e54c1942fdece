"""The studies by name, and the modules that have each as `STUDY`."""

from __future__ import annotations

MAIN = ("fabrics", "runtimes", "lossless")
"""Those of `make bench`."""

_IN_BENCH = (
    *MAIN,
    "containerlab",
    "endpoints",
    "live_page",
    "simulator",
    "packet_engine",
    "links_engine",
    "links_collectives",
    "simgrid",
)
STUDIES = {name: f"bench.{name}" for name in _IN_BENCH} | {
    name: f"bench.{name}.study" for name in ("validation",)
}
