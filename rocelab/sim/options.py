"""How to simulate: the options of `rocelab.simulate`, each with the option of the command line.

It loads no model of a file, which `--help` would wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocelab.base.errors import InputError
from rocelab.base.options import option
from rocelab.base.units import DURATION
from rocelab.hosts.model import HostModel
from rocelab.results.engines import Engine, PortModel
from rocelab.routes.models import Model

if TYPE_CHECKING:
    from rocelab.sim.events.event_spec import TimelineSpec

ENGINE_SEED = 1
_ENGINE, _WHAT_IF = "Engine", "What if"


def _timeline(lines: Sequence[str] = ()) -> TimelineSpec:
    from rocelab.sim.events.event_spec import TimelineSpec
    from rocelab.sim.events.sentence import parse_event

    return TimelineSpec(events=tuple(parse_event(line) for line in lines))


def _host_model(value: str | Mapping[str, object]) -> HostModel:
    from rocelab.hosts.host_spec import HostModelSpec
    from rocelab.labfile.servers import server_named

    # A sweep has read the file already.
    return (
        server_named(value) if isinstance(value, str) else HostModelSpec.model_validate(value)
    ).model


def _host_models() -> list[str]:
    from rocelab.labfile.catalog import SERVERS, own_files, shipped_names

    return sorted({*own_files(SERVERS), *shipped_names(SERVERS)})


@dataclass(frozen=True, slots=True)
class Options:
    """How to simulate: the options of `rocelab simulate`, whose help describes them.

    Raises InputError for options that the engine does not have.
    """

    model: Model = option(
        Model.KERNEL,
        "kernel; or crc16 or crc32 with modulo, as switch ASICs choose.",
        metavar="MODEL",
        panel=_WHAT_IF,
    )
    timeline: TimelineSpec = option(
        None,
        "A failure during the run: 'fail link rtsw1:ctsw2 at 5ms for 2ms', 'drain ctsw1'. "
        "May be given several times.",
        factory=_timeline,
        name="event",
        metavar="TEXT",
        panel=_WHAT_IF,
        read=_timeline,
        several=True,
    )
    """Failures during the run."""

    host_model: HostModel | None = option(
        None,
        "The type of all servers: dgx-h100, dgx-a100, gb200-nvl72, mi300x, h100-pcie, l40s, the "
        "path of a file of servers/, or of a topology of NCCL (XML). By default host_model of the "
        "job or the lab, or hosts take no time.",
        metavar="NAME",
        panel=_ENGINE,
        read=_host_model,
        words=_host_models,
    )
    """None is that of the jobs or of the lab."""

    hop_latency_ns: float | None = option(
        None,
        "The latency that each link and switch adds to a send. By default links.delay of "
        "the lab, or 1us.",
        name="hop_latency",
        metavar="TIME",
        panel=_ENGINE,
        read=DURATION.parse,
    )
    """Of each send on a path; None is `links.delay` of the lab."""

    eps: float | None = option(
        None,
        "Batch completions that fall within this share of the longest remaining time. "
        "Faster when transfer sizes vary widely; default: exact.",
        metavar="SHARE",
        panel=_ENGINE,
        minimum=0.0,
        maximum=0.5,
    )
    """None is 0, exactly."""

    engine: Engine = option(
        Engine.FLUID,
        "fluid; packets: packet by packet, with queues, marks, drops, pauses and DCQCN; "
        "or links: packets without pauses, each link alone, for flows that begin at given "
        "times.",
        metavar="ENGINE",
        panel=_ENGINE,
    )
    ports: PortModel = option(
        PortModel.STORE_AND_FORWARD,
        "When packets leave a port: store-and-forward (the default), cut-through, or "
        "lab (with their first bit, between hosts like a lab's).",
        metavar="MODEL",
        panel=_ENGINE,
        says_default=True,
    )
    """Of the packet engine."""

    seed: int = option(
        ENGINE_SEED,
        "With packets: draws marks, the paths of sprayed packets, how late a lab's hosts "
        "wake, and the order of events at one instant; 1 by default.",
        name="engine_seed",
        metavar="N",
        panel=_ENGINE,
        says_default=True,
    )
    """Of the packet engine. Draws what queues mark, ways of packets where a flow has several, how
    late a lab's hosts wake, and the order of what happens at one instant."""

    prove: bool = option(
        False,
        "Check every solve: no link above its rate, each transfer the largest on a full link.",
        panel=_ENGINE,
    )

    def __post_init__(self) -> None:
        from rocelab.labfile.model import MAX_SEED

        if self.engine is Engine.FLUID and self.ports is not PortModel.STORE_AND_FORWARD:
            raise InputError(
                "--ports: only the engine packets has several models of ports",
                hint="add --engine packets",
            )
        if self.engine is Engine.FLUID and self.seed != ENGINE_SEED:
            raise InputError(
                "--engine-seed: the fluid engine draws no random numbers",
                hint="add --engine packets",
            )
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"--engine-seed: expected 0 to {MAX_SEED}, got {self.seed}")
