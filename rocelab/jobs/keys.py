"""The keys of a job that have an option on the command line: the one table of them.

`rocelab.cli.options` makes the options of every command that takes a job from it, and
`rocelab.jobs.options` reads a job from their values. It loads no model, so that `--help` and the
shell's completion do not wait for one; a unit test holds `words` to the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rocelab.base.doors import registered


class KeySubject(Enum):
    """What a key describes, as the help groups the options."""

    RANKS = "What the ranks do"
    NICS = "How their NICs send"


@dataclass(frozen=True, slots=True)
class JobKey:
    """A key of a job, by its dotted name in a job file, and the option that sets it.

    A flag takes no value and sets the key to true.
    """

    key: str
    metavar: str
    help: str
    words: tuple[str, ...] = ()
    """The values that the shell completes."""

    group: str | None = None
    """The group of entry points whose names are values too."""

    @property
    def completions(self) -> tuple[str, ...]:
        """What the shell completes."""
        others = sorted(registered(self.group) - set(self.words)) if self.group else ()
        return (*self.words, *others)

    @property
    def about(self) -> KeySubject:
        return KeySubject.NICS if self.key.startswith("transport.") else KeySubject.RANKS

    @property
    def is_flag(self) -> bool:
        return not self.metavar


KEYS: Mapping[str, JobKey] = {
    "pattern": JobKey(
        "pattern",
        "NAME",
        "Collectives: allreduce, allgather, reducescatter, alltoall, alltoallv, broadcast, gather. "
        "Single sends: incast (all to rank 0), pairs, permutation.",
        (
            *("allreduce", "allgather", "reducescatter", "alltoall", "alltoallv", "broadcast"),
            *("gather", "incast", "pairs", "permutation"),
        ),
        group="rocelab.jobs.patterns",
    ),
    "ranks": JobKey("ranks", "N", "How many, each on a NIC of its own."),
    "size": JobKey("size", "SIZE", "Bytes as nccl-tests counts them: 64MB, 1MiB."),
    "duration": JobKey(
        "duration",
        "TIME",
        "Instead of a size: how long single sends last, in the modelled network's time: 20ms.",
    ),
    "starts": JobKey(
        "starts", "TIME,...", "With --duration: as many groups of senders begin at these times."
    ),
    "iterations": JobKey("iterations", "N", "Measured repetitions; 5 by default, 1 if simulated."),
    "warmup": JobKey("warmup_iterations", "N", "Repetitions before, not measured; 1 by default."),
    "compute": JobKey("compute", "TIME", "Pause of every rank between iterations."),
    "algorithm": JobKey(
        "algorithm",
        "NAME",
        "For an allreduce: ring, tree, hierarchical; with an NVLink switch (--host-model) nvls or "
        "nvls-tree, nvls also for an allgather or reducescatter, and collnet, where the network's "
        "switches reduce; pat for an allgather or reducescatter. A broadcast has ring alone. For "
        "an alltoall: direct, hierarchical; with --host-model pxn.",
        ("ring", "tree", "hierarchical", "nvls", "nvls-tree", "collnet", "pat", "direct", "pxn"),
    ),
    "protocol": JobKey(
        "protocol",
        "NAME",
        "NCCL's, with --host-model: ll, ll128, simple.",
        ("ll", "ll128", "simple"),
    ),
    "channels": JobKey("channels", "N", "Parts of the buffer that proceed independently."),
    "in-flight": JobKey(
        "in_flight", "N", "For an alltoall(v): others that a rank sends to at once; 64 by default."
    ),
    "network": JobKey(
        "network",
        "NAME",
        "Of a lab with several networks, whose NICs send: the first of the file by default.",
    ),
    "placement": JobKey(
        "placement",
        "HOW",
        "contiguous (server by server), topology-aware (leaf by leaf), fragmented (zones and "
        "leaves in turn), random, or a list: srv1-1,srv2-1:2.",
        ("contiguous", "topology-aware", "fragmented", "random"),
    ),
    "seed": JobKey("seed", "N", "Draws random placements and permutations, and ports."),
    "transport": JobKey(
        "transport.kind",
        "NAME",
        "roce, or tcp: the kernel's own, in a lab; then of the options below only the next two.",
        ("roce", "tcp"),
    ),
    "congestion-control": JobKey(
        "transport.congestion_control",
        "NAME",
        "Of --transport tcp: cubic, which is the default, bbr, reno.",
        ("cubic", "bbr", "reno"),
    ),
    "connections": JobKey(
        "transport.connections", "N", "Of --transport tcp: connections from a rank to another."
    ),
    "qps": JobKey("transport.qps", "N", "Queue pairs per pair of NICs: more of them, more paths."),
    "strategy": JobKey(
        "transport.strategy",
        "NAME",
        "Messages over queue pairs: round-robin, or split (each over all).",
        ("round-robin", "split"),
    ),
    "message": JobKey("transport.message", "SIZE", "Longest message, 1MiB by default."),
    "mtu": JobKey("transport.mtu", "BYTES", "Payload per packet, even; 4096 by default."),
    "source-port": JobKey(
        "transport.source_port",
        "NAME",
        "UDP source ports, which ECMP hashes: per-qp, fixed, flow-label, rxe.",
        ("per-qp", "fixed", "flow-label", "rxe"),
    ),
    "dcqcn": JobKey(
        "transport.dcqcn",
        "NAME",
        "Congestion control: off, or parameters as published: sigcomm15, hpcc-dcqcn, "
        "hpcc-dcqcn-paper, connectx4, simai. Off by default.",
        ("off", "sigcomm15", "hpcc-dcqcn", "hpcc-dcqcn-paper", "connectx4", "simai"),
    ),
    "congestion": JobKey(
        "transport.congestion",
        "NAME",
        "Another congestion control, of an installed package; simulated with packets only.",
        group="rocelab.congestion",
    ),
    "ecn": JobKey(
        "transport.ecn",
        "NAME",
        "ect0 (switches may mark), not-ect, ce (all marked).",
        ("ect0", "not-ect", "ce"),
    ),
    "admission": JobKey(
        "transport.admission",
        "BOOL",
        "true: nothing is sent before a clear-to-send.",
        ("true", "false"),
    ),
    "out-of-order": JobKey(
        "transport.out_of_order", "", "NICs accept packets in any order: for labs that spray."
    ),
    "selective-repeat": JobKey(
        "transport.selective_repeat",
        "",
        "NICs resend only missing packets; simulated with packets only, as labs go back N.",
    ),
}
"""The keys by the name of the option, in the order of the help."""
