"""Which servers run a program, and what tells each copy its rank. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rocelab.base.errors import InputError
from rocelab.base.wording import name_hint
from rocelab.planning.fabric import Fabric

MASTER_PORT = 29500
"""torchrun's own."""

_LINE_BY_LINE = {"PYTHONUNBUFFERED": "1"}
"""Python would keep what it prints into a pipe until it has 8 KB: neither a line nor its time would
be seen."""

OPENMPI_PREFIXES = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")


@dataclass(frozen=True, slots=True)
class RankedProgram:
    """A program on a server: its rank among all of a run, and what it is started with."""

    rank: int
    node: str
    local_rank: int
    argv: tuple[str, ...]
    name: str
    """How outputs and messages name it: `srv1-1`, or `srv1-1/0` where a server has several."""

    variables: Mapping[str, str]
    """The environment that the run adds."""


def matching_servers(fabric: Fabric, patterns: Sequence[str]) -> list[str]:
    """The servers whose names match one of the patterns (fnmatch(3)), in the order of the patterns
    and then of the lab, each once. Raises InputError for a pattern that matches none."""
    names = [server.name for server in fabric.servers]
    chosen: dict[str, None] = {}
    for pattern in patterns:
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            node = fabric.node_by_name.get(pattern)
            raise InputError(
                f"{pattern} is a switch, and programs run on servers"
                if node
                else f"no server of lab {fabric.name} matches {pattern!r}",
                hint="name each server, or each pattern, by itself"
                if {",", " "} & set(pattern)
                else name_hint(pattern, names),
            )
        chosen.update(dict.fromkeys(matching))
    return list(chosen)


def plan_programs(
    fabric: Fabric,
    servers: Sequence[str],
    argv: Sequence[str],
    *,
    per_server: int = 1,
    environment: Mapping[str, str] | None = None,
) -> tuple[RankedProgram, ...]:
    """A program of each rank, `per_server` on each server, ranks of a server one after the other.

    `fabric` is the network that they are to use: the one of their master's address, on the first
    server, and of the interfaces that their libraries are told. The variables are those that
    torchrun, Slurm and OpenMPI give, so that an unmodified program knows its rank; `environment`
    goes before them. Raises InputError if a server has no NIC in the network.
    """
    for server in servers:
        if server not in fabric.node_by_name:
            raise InputError(f"{server} has no NIC in network {fabric.network_name}")
    world = len(servers) * per_server
    network = "" if fabric.network_name is None else f".{fabric.network_name}"
    names = [f"{server}{network}" for server in servers]
    programs = []
    for rank in range(world):
        index, local = divmod(rank, per_server)
        variables = {
            **_rank_variables(rank, world, local, per_server, index, len(servers)),
            **_interface_variables(fabric, servers[index]),
            "MASTER_ADDR": names[0],
            "MASTER_PORT": str(MASTER_PORT),
            "SERVERS": " ".join(names),
            **_LINE_BY_LINE,
            **(environment or {}),
        }
        server = servers[index]
        name = server if per_server == 1 else f"{server}/{local}"
        programs.append(RankedProgram(rank, server, local, tuple(argv), name, variables))
    return tuple(programs)


def _rank_variables(
    rank: int, world: int, local: int, per_server: int, index: int, servers: int
) -> dict[str, str]:
    """The same numbers by each launcher's names. Slurm's job and OpenMPI's daemon have none: a
    library would ask these for more."""
    names: tuple[tuple[int, tuple[str, ...]], ...] = (
        (rank, ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")),
        (world, ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")),
        (local, ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")),
        (per_server, ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE")),
        (index, ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")),
        (servers, ("GROUP_WORLD_SIZE", "SLURM_NNODES")),
    )
    return {name: str(number) for number, group in names for name in group}


def _interface_variables(fabric: Fabric, server: str) -> dict[str, str]:
    """What libraries would else guess: the interface of the server's first NIC for Gloo and NCCL,
    and the network's prefixes for OpenMPI, which reads those of IPv4 alone."""
    interface = fabric.nics(server)[0].links[0].a.interface
    names = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    if prefixes := ",".join(prefix for prefix in fabric.space if ":" not in prefix):
        names |= dict.fromkeys(OPENMPI_PREFIXES, prefixes)
    return names
