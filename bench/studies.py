"""The studies by name: each is the module of that name, which has a `STUDY`."""

MAIN = ("fabrics", "runtimes", "lossless")
"""Those of `make bench`."""

STUDIES = (
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
