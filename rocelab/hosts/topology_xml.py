"""Reads a server from a topology file of NCCL or RCCL (`NCCL_TOPO_FILE`, `NCCL_TOPO_DUMP_FILE`).

The file is a tree of `cpu`, `pci`, `gpu`, `nic` and `net` elements (NCCL's src/graph/xml.cc and
topo.cc). GPUs, NICs, which of them are near each other, PCIe links and NVLink or xGMI are taken
from it; it knows no time that hosts take, for which NCCL's own figures stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as Xml

from rocelab.base.units import BANDWIDTH, DURATION, RATE
from rocelab.base.wording import RefusedError, counted, shown
from rocelab.hosts.host_spec import ASSUMED, LANE_BPS, HostModelSpec
from rocelab.hosts.model import LocalKind

MOST_ELEMENTS = 20_000
MOST_DEPTH = 64

LAUNCH_NS, STEP_NS = 8_400, 14_000
LOCAL_NS = {LocalKind.SWITCH: 3_400, LocalKind.MESH: 3_400, LocalKind.PCIE: 5_700}
"""NCCL's figures of a ring with its protocol Simple (src/graph/tuning.cc,
ncclTunerConstantsDefaults: baseLatencies, and hwLatencies of NET, NVLINK and PCI)."""

NVLINK_BYTES = ((100, 40.1e9), (90, 20.6e9), (87, 20e9), (86, 12e9), (80, 20e9), (70, 20e9))
"""What a link carries one way, from each compute capability on, the first that fits (NCCL's
src/graph/topo.h); older ones 18 GB/s."""
HOPPER = 90
"""The compute capability from which NVSwitches reduce."""

OLDEST_NVLINK = 18e9

XGMI_BYTES = (("gfx95", 48e9), ("gfx94", 48e9), ("gfx90a", 36e9))
"""The same of AMD's (RCCL's src/graph/topo.h); older ones 24 GB/s."""
OLDEST_XGMI = 24e9

_GENERATIONS = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5}
_GENERATIONS |= {"32.0": 5, "64": 6, "64.0": 6}
_GPU_CLASSES, _NIC_CLASS = ("0x03", "0x12"), "0x02"
_SPEED_BPS = 10**6


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU or a NIC, and the elements above it, the root first, itself last."""

    place: tuple[Xml.Element, ...]

    @property
    def element(self) -> Xml.Element:
        return self.place[-1]

    @property
    def bus(self) -> str:
        return self.element.get("busid", "")

    def shared(self, other: _Device) -> int:
        """How many elements are above both."""
        pairs = zip(self.place, other.place, strict=False)
        return next((depth for depth, (one, two) in enumerate(pairs) if one is not two), 0)

    def bps_from(self, depth: int) -> float:
        """What its PCIe links below an element of this depth carry: the slowest."""
        return min(map(_link_bps, self.place[depth:]))


def is_topology(text: str) -> bool:
    """Whether text is XML."""
    return text.lstrip().startswith("<")


def server_of_topology(text: str, name: str) -> HostModelSpec:
    """The server that a topology file describes. Raises RefusedError for what it does not describe,
    or what is not modelled: GPUs that differ, or that are not joined alike."""
    root = _parsed(text)
    devices = [_Device(place) for place in _pci_devices(root)]
    gpus = [device for device in devices if _is_class(device, *_GPU_CLASSES)]
    if not gpus:
        raise RefusedError(
            "no GPU in it: no pci element of class 0x03 or 0x12",
            "give the file that NCCL_TOPO_DUMP_FILE wrote, or that NCCL_TOPO_FILE names",
        )
    nics = _nics(devices)
    if not nics:
        raise RefusedError("no NIC in it: no pci element of class 0x02", "is it the right file?")
    near = [_nearest(gpu, nics) for gpu in gpus]
    used = sorted({nic for among in near for nic in among})
    affinity = _affinity(near, used)
    pairs = [(gpu, nics[used[nic]]) for gpu, nic in zip(gpus, affinity, strict=True)]
    nic_bps = min(nic.bps_from(gpu.shared(nic)) for gpu, nic in pairs)
    gpu_bps = min(gpu.bps_from(gpu.shared(nic)) for gpu, nic in pairs)
    return _spec(name, gpus, nics, used, affinity, (nic_bps, gpu_bps))


def _spec(
    name: str,
    gpus: Sequence[_Device],
    nics: Sequence[_Device],
    used: Sequence[int],
    affinity: Sequence[int],
    caps_bps: tuple[float, float],
) -> HostModelSpec:
    kind, bandwidth, local_source = _local(gpus, caps_bps[1])
    left_out = len(nics) - len(used)
    data = {
        "name": name,
        "title": f"a server of {counted(len(gpus), 'GPU')} and {counted(len(used), 'NIC')}",
        "gpus": len(gpus),
        "nics": len(used),
        "affinity": list(affinity),
        "nic": {"cap": RATE.written(int(caps_bps[0]))},
        "gpu": {"cap": RATE.written(int(caps_bps[1]))},
        "fabric": {
            "kind": kind.value,
            "bandwidth": BANDWIDTH.written(int(bandwidth)),
            "latency": DURATION.written(LOCAL_NS[kind]),
            "reduces": kind is LocalKind.SWITCH and min(map(_capability, gpus)) >= HOPPER,
        },
        "costs": {"launch": DURATION.written(LAUNCH_NS), "step": DURATION.written(STEP_NS)},
        "sources": {
            "gpus": "the topology",
            "nics": "the topology"
            + (f", without {left_out} that are far from all GPUs" if left_out else ""),
            "affinity": "the topology",
            "nic.cap": "PCIe links of the topology, at NCCL's rates (src/graph/topo.cc)",
            "gpu.cap": "PCIe links of the topology, at NCCL's rates (src/graph/topo.cc)",
            "fabric.kind": local_source,
            "fabric.bandwidth": local_source,
            "fabric.latency": f"{ASSUMED}: NCCL's tuner, ring, Simple (src/graph/tuning.cc)",
            "costs.launch": f"{ASSUMED}: NCCL's tuner, ring, Simple (src/graph/tuning.cc)",
            "costs.step": f"{ASSUMED}: NCCL's tuner, ring, Simple (src/graph/tuning.cc)",
        },
    }
    return HostModelSpec.model_validate(data)


def _parsed(text: str) -> Xml.Element:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise RefusedError("it has a DOCTYPE or entities", "topology files have none: remove them")
    try:
        root = Xml.fromstring(text)  # noqa: S314 - without entities, and of a limited size
    except Xml.ParseError as error:
        line, _ = error.position
        raise RefusedError(f"not XML: {error.msg.partition(':')[0]} on line {line}") from None
    if root.tag != "system":
        raise RefusedError(
            f"expected a topology with <system> at its top, got {shown(root.tag)}",
            "a graph file (NCCL_GRAPH_FILE) is no topology",
        )
    return root


def _pci_devices(root: Xml.Element) -> Iterator[tuple[Xml.Element, ...]]:
    """Each pci element that is no bridge, with the elements above it."""
    pending: list[tuple[Xml.Element, ...]] = [(root,)]
    visited = 0
    while pending:
        place = pending.pop()
        visited += 1
        if visited > MOST_ELEMENTS or len(place) > MOST_DEPTH:
            raise RefusedError(
                f"more than {MOST_ELEMENTS:,} elements, or nested deeper than {MOST_DEPTH}",
                "is it the right file?",
            )
        element = place[-1]
        if element.tag == "pci" and not element.get("class", "").startswith("0x06"):
            yield place
        # The last is taken first: in the order of the file.
        pending += [(*place, child) for child in reversed(element) if child.tag in ("cpu", "pci")]


def _is_class(device: _Device, *classes: str) -> bool:
    return device.element.get("class", "").startswith(classes)


def _nics(devices: Sequence[_Device]) -> list[_Device]:
    """Those that have `net` elements, or where none has any, all of the class."""
    nics = [device for device in devices if _is_class(device, _NIC_CLASS)]
    with_nets = [nic for nic in nics if nic.element.find("nic/net") is not None]
    return with_nets or nics


def _nearest(gpu: _Device, nics: Sequence[_Device]) -> list[int]:
    """The NICs with which a GPU shares most elements above it."""
    shared = [gpu.shared(nic) for nic in nics]
    return [number for number, depth in enumerate(shared) if depth == max(shared)]


def _affinity(near: Sequence[Sequence[int]], used: Sequence[int]) -> list[int]:
    """The NIC of each GPU, by its place in `used`: GPUs with the same NICs share them evenly."""
    place = {nic: index for index, nic in enumerate(used)}
    taken: Counter[tuple[int, ...]] = Counter()
    affinity = []
    for among in near:
        key = tuple(among)
        affinity.append(place[among[taken[key] % len(among)]])
        taken[key] += 1
    if any(taken[key] < len(key) for key in taken):
        raise RefusedError(
            "some GPUs are as near to several NICs of their own",
            "one NIC a GPU is modelled: write a server file with one of their rates together",
        )
    return affinity


def _link_bps(element: Xml.Element) -> float:
    """What the PCIe link of an element carries; of NCCL's default where it says nothing."""
    if element.tag != "pci":
        return float("inf")
    speed = element.get("link_speed", "").split()
    generation = _GENERATIONS.get(speed[0] if speed else "", 3)
    width = element.get("link_width", "")
    lanes = int(width) if width.isdecimal() and 1 <= int(width) <= 32 else 16
    return LANE_BPS[generation] * lanes


def _local(gpus: Sequence[_Device], gpu_bps: float) -> tuple[LocalKind, float, str]:
    """How GPUs reach each other, with how many bytes a second, and where that is from."""
    buses = {gpu.bus for gpu in gpus}
    counts = [_links(gpu) for gpu in gpus]
    if not any(counts):
        return (
            LocalKind.PCIE,
            gpu_bps / 8,
            f"{ASSUMED}: the topology has neither NVLink nor xGMI, so GPUs use PCIe; NCCL asks the "
            "driver for links that a file leaves out",
        )
    totals = {sum(links.values()) for links in counts}
    rates = {_rate(gpu) for gpu, links in zip(gpus, counts, strict=True) if links}
    if len(rates) > 1 or len(totals) > 1:
        raise RefusedError(
            "GPUs have different numbers or kinds of links",
            "GPUs that are alike are modelled: write a server file with what each has",
        )
    bandwidth = totals.pop() * rates.pop()
    source = "links of the topology, at the rates of NCCL and RCCL (src/graph/topo.h)"
    if not any(target in buses for links in counts for target in links):
        return LocalKind.SWITCH, bandwidth, source
    others = [
        {bus: links.get(bus, 0) for bus in buses - {gpu.bus}}
        for gpu, links in zip(gpus, counts, strict=True)
    ]
    if len({count for links in others for count in links.values()}) > 1:
        raise RefusedError(
            "some GPUs have more links to each other than to others",
            "a mesh of equal links, or a switch, is modelled: write a server file",
        )
    return LocalKind.MESH, bandwidth, source


def _links(gpu: _Device) -> Counter[str]:
    """The NVLinks or xGMI links of a GPU by the bus that they lead to."""
    links: Counter[str] = Counter()
    for link in gpu.element.iterfind("gpu/*"):
        if link.tag in ("nvlink", "xgmi"):
            count = link.get("count", "1")
            links[link.get("target", "")] += int(count) if count.isdecimal() else 1
    return links


def _rate(gpu: _Device) -> float:
    """What a link of a GPU carries, bytes/s."""
    element = gpu.element.find("gpu")
    assert element is not None
    architecture, number = element.get("gcn"), _capability(gpu)
    if architecture is not None:
        rates = (rate for prefix, rate in XGMI_BYTES if architecture.startswith(prefix))
        return next(rates, OLDEST_XGMI)
    return next((rate for least, rate in NVLINK_BYTES if number >= least), OLDEST_NVLINK)


def _capability(gpu: _Device) -> int:
    """The compute capability of an NVIDIA GPU, such as 90; 0 if unknown."""
    element = gpu.element.find("gpu")
    text = "" if element is None else element.get("sm", "")
    return int(text) if text.isdecimal() else 0
