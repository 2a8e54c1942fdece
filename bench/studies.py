"""The studies by name, and the modules that have each as `STUDY`."""

from __future__ import annotations

MAIN = ("fabrics", "runtimes", "lossless")
"""Those of `make bench`."""

PUBLISHED = (
    *MAIN,
    "containerlab",
    "endpoints",
    "live_page",
    "simulator",
    "packet_engine",
    "links_engine",
    "links_collectives",
    "simgrid",
    "ns3",
    "validation",
    "validation_collectives",
)
"""Those whose data and pages are in the tree; the pages of others are printed."""

PRINTED = ("steering", "hashing", "cables", "read_delay", "te_placing")
STUDIES = {name: f"bench.{name}" for name in (*PUBLISHED, *PRINTED)} | {
    "ns3": "bench.ns3.study",
    "validation": "bench.validation.study",
    "validation_collectives": "bench.validation.collectives",
}
