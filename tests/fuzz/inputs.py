"""The inputs: files of each kind that rocelab reads, damaged, and command lines that read them.

`made` makes the input of a number, always the same one, from a folder of samples (`samples`). No
command of these needs a lab or makes one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from rocelab.cli.main import command_line
from tests.fuzz.odd import damaged_bytes, damaged_tree, value, word
from tests.helpers.nccl_sample import nccl_output

TREE = Path(__file__).parents[2]
SMALL_LABS = ("zone-small", "rail-small", "hpn-small", "fat-tree-4", "lossless", "zones-small")
JOB = {"pattern": "allreduce", "ranks": 4, "size": "1MB"}
TYPED_JOB = ("--pattern", "allreduce", "--ranks", "4", "--size", "1MB")
TRAINING = {
    "model": {"layers": 4, "hidden": 256, "heads": 4, "ffn": 512, "vocab": 100, "sequence": 64},
    "tensor": 1,
    "pipeline": 2,
    "data": 2,
    "micro_batches": 4,
    "gpu_flops": "100T",
}
INFERENCE = {
    **{key: TRAINING[key] for key in ("model", "pipeline", "gpu_flops")},
    **{"prefill": 1, "decode": 1, "prompt": 64, "output": 4},
}
RANKING = {"ranks": 4, "tables": 8, "dimension": 16, "local_batch": 8, "dense_parameters": 1000}
KINDS_OF_JOB: tuple[dict[str, Any], ...] = (
    {"collective": JOB},
    {"training": TRAINING},
    {"inference": INFERENCE},
    {"ranking": RANKING},
    {"flows": {"file": "flows.txt"}},
    {"poisson": {"sizes": "websearch", "load": "10%", "duration": "50us"}},
    {"trace": {"file": "trace.0.et"}},
)
FLOW_FILES = (
    b"3\n0 1 3 100 100000 2.0\n1 2 3 100 5000 2.00001\n2 0 3 100 100 2.1\n",
    b"Nodes 4\nConnections 2\n0->1 start 0 size 100000\n2->3 start 1000000 size 5000\n",
)
FLOWS_CSV = b"source,destination,sport,bytes\nsrv1-1,srv2-1,1000,64MB\nsrv2-1,srv1-1,4791,1000\n"
CLAB = {
    "name": "mine",
    "topology": {
        "kinds": {"linux": {"image": "frr:latest"}},
        "nodes": {
            **{name: {"kind": "linux"} for name in ("leaf1", "leaf2", "spine1", "spine2")},
            **{name: {"kind": "linux", "image": "host"} for name in ("h1", "h2")},
        },
        "links": [
            {"endpoints": [f"{leaf}:eth{place}", f"{spine}:eth{number}"]}
            for number, leaf in enumerate(("leaf1", "leaf2"), 1)
            for place, spine in enumerate(("spine1", "spine2"), 1)
        ]
        + [{"endpoints": [f"leaf{number}:eth3", f"h{number}:eth1"]} for number in (1, 2)],
    },
}
SSH_CONFIG = (
    b"Host lab *.lab\n  HostName 10.0.0.1\n  Port 2222\n  User root\n  ProxyJump gate\n"
    b'  IdentityFile ~/.ssh/%h\nMatch host gate exec "true"\n  Port 22\nInclude more\n'
)
SWEEP: dict[str, Any] = {
    "lab": "zone-small",
    "job": JOB,
    "over": {"lab.fabric.spines": [2, 3], "job.ranks": [2, 4]},
    "zip": {"job.size": ["1MB", "2MB"], "job.transport.qps": [1, 2]},
}
TIMELINE = {
    "events": [{"fail": "rtsw1:ctsw1", "at": "1h", "lasts": "10m"}],
    "restart": {"checkpoint_every": "1h"},
}
COMMANDS = (
    *("labs", "plan", "render", "graph", "import", "schema", "predict", "simulate", "whatif"),
    *("longrun", "reference", "diagnose", "path", "drill list", "drill show", "drill diff"),
    *("fault kinds", "list", "status", "reach", "health", "te", "scheme", "traffic", "sweep"),
)
"""Those that neither make a lab nor reach another machine."""
MOST_CALLS = 10_000
"""Of the writer of YAML, in each other, for trees that nest some hundred levels."""


@dataclass(frozen=True)
class Input:
    """Files by name, and the arguments of a command that runs beside them, or what else is done
    with them."""

    kind: str
    arguments: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    call: Callable[[], object] | None = None


def made(number: int, seed: int, samples: Path) -> Input:
    """The input of a number."""
    draw = Random(f"{seed}/{number}")
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(MOST_CALLS)
    try:
        return _MAKERS[KINDS[number % len(KINDS)]](draw, samples)
    finally:
        sys.setrecursionlimit(usual)


def _file(tree: Any, draw: Random) -> bytes:
    """A damaged YAML file of a tree."""
    if draw.random() < 0.25:
        return damaged_bytes(yaml.safe_dump(tree, allow_unicode=True).encode(), draw)
    return yaml.safe_dump(damaged_tree(tree, draw), allow_unicode=True).encode()


@cache
def _shipped(folder: str) -> tuple[Any, ...]:
    return tuple(
        yaml.safe_load(path.read_text()) for path in sorted((TREE / folder).glob("*.yaml"))
    )


def _lab(draw: Random, samples: Path) -> Input:
    trees = [tree for tree in _shipped("labs") if tree["name"] in SMALL_LABS]
    commands = (
        ("plan", "lab.yaml"),
        ("plan", "lab.yaml", "--json"),
        ("graph", "lab.yaml"),
        ("graph", "lab.yaml", "--format", "mermaid"),
        ("render", "lab.yaml", "--out", "out"),
        ("simulate", "lab.yaml", *TYPED_JOB),
        ("simulate", "lab.yaml", *TYPED_JOB, "--engine", "packets"),
        ("predict", "lab.yaml", *TYPED_JOB),
        ("path", "lab.yaml", "srv1-1", "srv2-1"),
        ("whatif", "lab.yaml", "fail rtsw1:ctsw1 for 1h", *TYPED_JOB),
    )
    return Input("lab", draw.choice(commands), {"lab.yaml": _file(draw.choice(trees), draw)})


def _drill(draw: Random, samples: Path) -> Input:
    file = _file(draw.choice(_shipped("scripts")), draw)
    return Input("drill", ("drill", "show", "drill.yaml", *_json(draw)), {"drill.yaml": file})


def _job(draw: Random, samples: Path) -> Input:
    one = {"name": "job", "transport": {"qps": 2}, **draw.choice(KINDS_OF_JOB)}
    files = {
        "job.yaml": _file({"jobs": [one]} if draw.random() < 0.7 else JOB, draw),
        "flows.txt": draw.choice(FLOW_FILES),
        "trace.0.et": (samples / "trace.0.et").read_bytes(),
    }
    lab = draw.choice(("zone-small", "rail-small", "hpn-small"))
    engine = draw.choice(((), ("--engine", "packets"), ("--engine", "links")))
    command = draw.choice((("simulate", lab, *engine), ("whatif", lab, "fail 1 link for 1h")))
    return Input("job", (*command, "--job", "job.yaml", *_json(draw)), files)


def _sweep(draw: Random, samples: Path) -> Input:
    return Input("sweep", call=_Cells(), files={"sweep.yaml": _file(SWEEP, draw)})


class _Cells:
    """Reads a sweep and checks its cells, but runs none: that takes workers."""

    def __call__(self) -> None:
        from rocelab.sim.sweep.cells import cells_of
        from rocelab.sim.sweep.sweep_spec import read_sweep

        cells_of(read_sweep(Path("sweep.yaml")))


def _swept(draw: Random, samples: Path) -> Input:
    """A folder of a sweep that has ended, one of its files damaged."""
    files = {path.name: path.read_bytes() for path in (samples / "swept").iterdir()}
    name = draw.choice(("cells.jsonl", "cells.jsonl", "sweep.parquet"))
    if name == "cells.jsonl" and draw.random() < 0.5:
        lines = [json.loads(line) for line in files[name].splitlines()]
        text = "\n".join(json.dumps(damaged_tree(line, draw)) for line in lines) + "\n"
        files[name] = text.encode()
    else:
        files[name] = damaged_bytes(files[name], draw)
    out = {f"out/{file}": data for file, data in files.items() if file != "sweep.yaml"}
    arguments = ("sweep", "sweep.yaml", "--out", "out", "--workers", "1", *_json(draw))
    return Input("swept", arguments, {**out, "sweep.yaml": files["sweep.yaml"]})


def _topology(draw: Random, samples: Path) -> Input:
    return Input("topology", ("import", "mine.clab.yml"), {"mine.clab.yml": _file(CLAB, draw)})


def _trace(draw: Random, samples: Path) -> Input:
    data = damaged_bytes((samples / "trace.0.et").read_bytes(), draw)
    job = {"jobs": [{"name": "job", "trace": {"file": "trace.0.et", "ranks": 4}}]}
    files = {"trace.0.et": data, "job.yaml": yaml.safe_dump(job).encode()}
    return Input("trace", ("simulate", "zone-small", "--job", "job.yaml"), files)


def _log(draw: Random, samples: Path) -> Input:
    arguments = ("reference", "zone-1-1", "log.txt", "--ranks", "8", *_json(draw))
    return Input("log", arguments, {"log.txt": damaged_bytes(nccl_output().encode(), draw)})


def _document(draw: Random, samples: Path) -> Input:
    path = draw.choice(sorted(samples.glob("*.json")))
    data = path.read_bytes()
    if draw.random() < 0.7:
        data = json.dumps(damaged_tree(json.loads(data), draw)).encode()
    else:
        data = damaged_bytes(data, draw)
    commands = (
        ("diagnose", "a.json"),
        ("diagnose", "a.json", "--json"),
        ("diagnose", "a.json", "--picture", "p.svg"),
        ("drill", "diff", "a.json", "b.json"),
        ("drill", "diff", "b.json", "a.json", "--json"),
    )
    return Input("document", draw.choice(commands), {"a.json": data, "b.json": path.read_bytes()})


def _flows(draw: Random, samples: Path) -> Input:
    if draw.random() < 0.5:
        files = {"flows.csv": damaged_bytes(FLOWS_CSV, draw)}
        return Input("flows", ("predict", "zone-small", "--flows", "flows.csv"), files)
    job = {"jobs": [{"name": "job", "flows": {"file": "flows.txt"}}]}
    files = {
        "flows.txt": damaged_bytes(draw.choice(FLOW_FILES), draw),
        "job.yaml": yaml.safe_dump(job).encode(),
    }
    engine = draw.choice(("fluid", "packets", "links"))
    return Input(
        "flows", ("simulate", "zone-small", "--job", "job.yaml", "--engine", engine), files
    )


def _ssh(draw: Random, samples: Path) -> Input:
    address = draw.choice(("lab", "root@lab:22", "x.lab", "gate", f"u@{word(draw)}", word(draw)))
    files = {"config": damaged_bytes(SSH_CONFIG, draw)}
    return Input("ssh", call=_Destination(address), files=files)


@dataclass(frozen=True)
class _Destination:
    """Where an address leads by a configuration of ssh; nothing is reached."""

    address: str

    def __call__(self) -> None:
        from rocelab.remote import address as remote

        config = remote.read_config(Path("config"))
        remote.resolve(remote.parse_address(self.address), config, Path.cwd())


def _timeline(draw: Random, samples: Path) -> Input:
    arguments = ("longrun", "zone-small", "--timeline", "events.yaml", "--work", "1d", *TYPED_JOB)
    return Input("timeline", arguments, {"events.yaml": _file(TIMELINE, draw)})


def _event(draw: Random, samples: Path) -> Input:
    verbs = ("fail", "drain", "lose")
    places = ("2", "links", "of", "rack", "1", "rtsw1:ctsw1", "ctsw1", "zone")
    words = (*verbs, *places, "at", "1s", "for", "10s", "every", word(draw))
    sentence = " ".join(draw.choice(words) for _ in range(draw.randrange(1, 9)))
    lab = draw.choice(SMALL_LABS)
    arguments = draw.choice(
        (
            ("whatif", lab, sentence, *TYPED_JOB),
            ("simulate", lab, *TYPED_JOB, "--event", sentence),
        )
    )
    return Input("event", arguments)


def _line(draw: Random, samples: Path) -> Input:
    """A command with any of its options and arguments, each with a value that it may have or with
    an odd one."""
    name = draw.choice(COMMANDS)
    arguments = name.split()
    command: Any = command_line()  # typer's parser, whose classes differ between versions
    for argument in arguments:
        command = command.commands[argument]
    files = {"lab.yaml": _file(_shipped("labs")[0], draw)} if draw.random() < 0.2 else {}
    chosen = [
        parameter
        for parameter in command.params
        if parameter.name != "help" and (parameter.required or draw.random() < 0.25)
    ]
    if name in ("simulate", "predict", "whatif", "longrun") and draw.random() < 0.7:
        arguments += TYPED_JOB
    if draw.random() < 0.1:
        arguments.append(word(draw))
    for parameter in chosen:
        if parameter.param_type_name == "argument":
            arguments.append(draw.choice((_usual(parameter, draw), word(draw))))
            continue
        arguments.append(draw.choice(parameter.opts))
        if not getattr(parameter, "is_flag", False):
            arguments.append(draw.choice((_usual(parameter, draw), word(draw))))
    return Input("line", tuple(arguments), files)


_USUAL: Mapping[str, tuple[str, ...]] = {
    "lab": (*SMALL_LABS, "lab.yaml"),
    "pattern": ("allreduce", "alltoall", "incast", "broadcast", "pairs", "alltoallv"),
    "ranks": ("2", "4", "8"),
    "size": ("1MB", "1B", "64GB"),
    "engine": ("fluid", "packets", "links"),
    "scheme": ("ecmp", "spray", "te", "resilient", "e-ecmp", "flowlet"),
    "hashing": ("per-node", "shared", "7"),
    "model": ("crc16", "kernel"),
    "event": ("fail rtsw1:ctsw1 for 1h", "drain ctsw1 for 1h"),
    "rates": ("hpn", "llama3"),
    "job_file": ("allreduce", "inference", "websearch"),
    "flows": ("elephants", "flows.csv"),
    "drill": ("link-flap", "storm"),
    "out": ("out",),
}


def _usual(parameter: Any, draw: Random) -> str:
    if choices := getattr(getattr(parameter, "type", None), "choices", None):
        return str(draw.choice(list(choices)))
    return draw.choice(_USUAL.get(parameter.name or "", ("1", "2", "1ms", "1KB", "true", "x")))


def _json(draw: Random) -> tuple[str, ...]:
    return ("--json",) if draw.random() < 0.3 else ()


def _garbage(draw: Random, samples: Path) -> Input:
    """Any content in the place of any file."""
    content = draw.choice(
        (
            draw.randbytes(200),
            yaml.safe_dump(value(draw), allow_unicode=True).encode(),
            b"&a [*a]",
            b"a: &a [1]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
            b"- " * 5000,
            b"[" * 50_000,
            b'{"a":' * 20_000,
            b"",
            b"\0" * 100,
        )
    )
    commands = (
        ("plan", "f.yaml"),
        ("drill", "show", "f.yaml"),
        ("simulate", "zone-small", "--job", "f.yaml"),
        ("import", "f.yaml"),
        ("reference", "zone-1-1", "f.yaml"),
        ("diagnose", "f.yaml"),
        ("drill", "diff", "f.yaml", "f.yaml"),
        ("predict", "zone-small", "--flows", "f.yaml"),
        ("sweep", "f.yaml", "--out", "out"),
        ("longrun", "zone-small", "--timeline", "f.yaml", *TYPED_JOB),
    )
    return Input("garbage", draw.choice(commands), {"f.yaml": content})


_MAKERS: Mapping[str, Callable[[Random, Path], Input]] = {
    "lab": _lab,
    "drill": _drill,
    "job": _job,
    "sweep": _sweep,
    "swept": _swept,
    "topology": _topology,
    "trace": _trace,
    "log": _log,
    "document": _document,
    "flows": _flows,
    "ssh": _ssh,
    "timeline": _timeline,
    "event": _event,
    "line": _line,
    "garbage": _garbage,
}
KINDS = tuple(_MAKERS)
