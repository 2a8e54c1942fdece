"""Adopts a lab that containerlab deployed: finds it, reads it, records it. Changes nothing in it.

The record is as that of a lab that rocelab brought up, with the fabric that was found; the lab's
folder has a link to the namespace of every node instead of a mount, which would keep the namespace
of a container that is removed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version

from rocelab.base.doors import plugins
from rocelab.base.errors import InputError, MachineError
from rocelab.base.files import make_folder
from rocelab.base.interruption import shielded
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.base.wording import listed
from rocelab.lab.adoption.containers import RunningContainer, find_containers
from rocelab.lab.adoption.graph import HOST_KINDS, cables, lab_of
from rocelab.lab.adoption.survey import NodeSurvey, survey
from rocelab.lab.engine import ContainerEngine
from rocelab.lab.inuse import in_use
from rocelab.lab.kind import ADOPTED
from rocelab.lab.providers.adopted import (
    AdoptedContainer,
    AdoptionRecord,
    ContainerFrr,
    read_adopted,
    write_adopted,
)
from rocelab.lab.settings import read_deviations, sentences
from rocelab.labfile.base import safe_name
from rocelab.labfile.model import LabSpec
from rocelab.linux import namespaces
from rocelab.linux.bracket import realtime_ns
from rocelab.linux.rights import check_rights
from rocelab.planning.build import plan
from rocelab.record import (
    LabFiles,
    Record,
    State,
    locked,
    recorded_count,
    remove_files,
    write_record,
)
from rocelab.routing.frr.installation import FrrInstallation, version_in
from rocelab.routing.frr.peers import bgp_peers, local_asn
from rocelab.routing.frr.vty import vty_command
from rocelab.routing.stack import write_installation

NO_FRR = "none"


@dataclass(frozen=True, slots=True)
class Adoption:
    """A lab that was adopted: its name here, and what the user should know about it."""

    name: str
    spec: LabSpec
    notes: tuple[str, ...]


def adopt(text: str, progress: ProgressSink = no_progress) -> Adoption:
    """Adopt the running lab that containerlab calls `text`, a name or a topology file. One that was
    adopted before is read again.

    Raises InputError if there is none, it has no two nodes that a link joins, or a lab of rocelab's
    own or with faults has the name; MachineError if no engine answers or rights are missing.
    """
    check_rights()
    lab, engine, members = find_containers(text)
    containers, sidecars = _with_own_namespace(members)
    name = safe_name(lab) or ADOPTED
    with locked(name) as files, _free(files, lab):
        nodes = _read(files, containers, progress)
        if not any(cables(nodes)):
            raise InputError(
                f"no two nodes of lab {lab} are joined by a link",
                "there is nothing to break or to measure",
            )
        spec = lab_of(name, nodes)
        with shielded(f"lab {name} is adopted"):
            _record(files, lab, engine, containers, nodes, spec)
        deviations = read_deviations(plan(spec), files)
    in_machine = {container.name for container in members} - sidecars.keys()
    in_machine -= {container.name for container in containers}
    notes = _notes(name, lab, nodes, in_machine, sidecars)
    notes += tuple(f"runs are not valid while {sentence}" for sentence in sentences(deviations))
    return Adoption(name, spec, notes)


def _with_own_namespace(
    containers: Sequence[RunningContainer],
) -> tuple[tuple[RunningContainer, ...], dict[str, str]]:
    """The containers that are nodes, and those that share the network namespace of one, each with
    that node's name. Of these the node is the one that was not started in another's network. None
    is in the machine's own namespace: a fault there would break the machine."""
    by_netns: dict[int, list[RunningContainer]] = {}
    for container in containers:
        if not _is_in_the_machine_s(container):
            by_netns.setdefault(_netns_of(container), []).append(container)
    nodes: list[RunningContainer] = []
    sidecars: dict[str, str] = {}
    for sharing in by_netns.values():
        node = min(sharing, key=lambda container: container.is_sidecar)
        nodes.append(node)
        sidecars |= {container.name: node.name for container in sharing if container is not node}
    return tuple(nodes), sidecars


def _is_in_the_machine_s(container: RunningContainer) -> bool:
    """Whether a container is in the network namespace of this process or of process 1."""
    for pid in (os.getpid(), 1):
        with suppress(FileNotFoundError):  # /proc may hide process 1
            if namespaces.are_in_one(container.pid, pid):
                return True
    return False


def _netns_of(container: RunningContainer) -> int:
    """The inode number of a container's network namespace. Raises MachineError."""
    try:
        return namespaces.inode_of(container.pid)
    except PermissionError:
        raise MachineError(
            f"container {container.name} has rights that this process lacks: its namespace cannot "
            "be entered",
            "run it as root with all capabilities of the machine, outside of a container",
        ) from None


def forget(name: str) -> None:
    """Remove the record of a lab that was adopted. Its faults must have been restored. Idempotent;
    raises InputError if rocelab brought the lab up."""
    with locked(name) as files:
        if not files.root.exists():
            return
        check_adopted(files)
        remove_files(files)


def check_adopted(files: LabFiles) -> None:
    """Raises InputError if rocelab brought the lab up."""
    if not files.is_adopted:
        raise InputError(
            f"lab {files.lab} was brought up here and not adopted",
            f"take it down with `rocelab down {files.lab}`",
        )


@contextmanager
def _free(files: LabFiles, lab: str) -> Iterator[None]:
    """Keep drills, jobs and faults off a lab of this name that was adopted before. Raises
    InputError if it is rocelab's own, another one, in use, or has faults."""
    if not files.root.exists():
        yield
        return
    check_adopted(files)
    was = read_adopted(files).lab
    if was != lab:
        raise InputError(
            f"lab {was} of containerlab has the name {files.lab} here",
            f"release that lab first with `rocelab release {files.lab}`",
        )
    with in_use(files, "its adoption"):
        if recorded_count(files):
            raise InputError(
                f"lab {files.lab} is adopted and has faults",
                f"undo them with `rocelab fault restore {files.lab} --all`",
            )
        yield


def _read(
    files: LabFiles, containers: Sequence[RunningContainer], progress: ProgressSink
) -> tuple[NodeSurvey, ...]:
    """The survey of all nodes, with what bgpd of those that run FRR says."""
    nodes = []
    for done, node in enumerate(survey(containers), start=1):
        container = next(container for container in containers if container.name == node.name)
        nodes.append(_with_bgp(files, container, node) if "bgpd" in node.daemons else node)
        progress(Progress("nodes", done, len(containers)))
    return tuple(nodes)


def _with_bgp(files: LabFiles, container: RunningContainer, node: NodeSurvey) -> NodeSurvey:
    frr = _frr(files, container)
    with suppress(OSError):  # Another NOS may call its daemon bgpd too.
        return replace(node, asn=local_asn(frr), neighbours=tuple(bgp_peers(frr)))
    return node


def _frr(files: LabFiles, container: RunningContainer) -> ContainerFrr:
    return ContainerFrr(files.node(container.name), container.root)


def _record(
    files: LabFiles,
    lab: str,
    engine: ContainerEngine,
    containers: Sequence[RunningContainer],
    nodes: Sequence[NodeSurvey],
    spec: LabSpec,
) -> None:
    """Write the lab's folder; a record that is there is replaced."""
    for folder in (files.root, files.nodes, files.netns):
        make_folder(folder, exist_ok=True)
    commands_of = {node.name: node.daemons for node in nodes}
    write_adopted(
        files,
        AdoptionRecord(
            lab,
            engine.program,
            {
                container.name: AdoptedContainer(
                    container.container,
                    container.image,
                    container.pid,
                    namespaces.inode_of(container.pid),
                    commands_of[container.name],
                )
                for container in containers
            },
        ),
    )
    for container in containers:
        make_folder(files.node(container.name), exist_ok=True)
        link = files.netns_of(container.name)
        link.unlink(missing_ok=True)
        link.symlink_to(container.netns)
    write_installation(files.root, _installation(files, containers, nodes))
    write_record(
        files,
        Record(
            lab=files.lab,
            runtime=ADOPTED,
            state=State.RUNNING,
            started_unix_s=realtime_ns() / 1e9,
            version=version("rocelab"),
            spec=spec.model_dump(mode="json"),
            machine_netns=namespaces.inode_of(os.getpid()),
            plugins=list(plugins()),
        ),
    )


def _installation(
    files: LabFiles, containers: Sequence[RunningContainer], nodes: Sequence[NodeSurvey]
) -> FrrInstallation:
    """The FRR of the first node that runs one, for results; with version `none` if none does."""
    running = {node.name for node in nodes if "zebra" in node.daemons}
    release = NO_FRR
    if container := next(
        (container for container in containers if container.name in running), None
    ):
        said = ""
        with suppress(OSError):
            said = vty_command(_frr(files, container), "zebra", "show version")
        release = version_in(said)
    return FrrInstallation(release, "", 0, 0, False, "", "")


def _notes(
    name: str,
    lab: str,
    nodes: Sequence[NodeSurvey],
    in_machine: Collection[str],
    sidecars: Mapping[str, str],
) -> tuple[str, ...]:
    """What the user should know: the name, and what cannot be done on which nodes."""
    notes = [f"containerlab's lab {lab} is called {name} here"] if name != lab else []
    waiting = sorted(node.name for node in nodes if node.daemons and not node.routes)
    if waiting:
        notes.append(
            f"{listed(waiting, 'and')}: no route of a routing daemon; if routing has not converged "
            "yet, adopt the lab again once it has"
        )
    others = sorted(node.name for node in nodes if node.kind not in HOST_KINDS)
    if others:
        notes.append(
            f"{listed(others, 'and')}: of a kind that may forward by other tables than its "
            "kernel's: what is read of routes there may not be what forwards"
        )
    wired = {end for one, other in cables(nodes) for end in (one[0], other[0])}
    alone = sorted({node.name for node in nodes} - wired)
    if alone:
        notes.append(f"{listed(alone, 'and')}: no link to another node was found")
    if in_machine:
        notes.append(
            f"{listed(sorted(in_machine), 'and')}: left out, in the machine's own network namespace"
        )
    notes += [
        f"{sidecar}: part of {node}, whose network namespace it shares"
        for sidecar, node in sorted(sidecars.items())
    ]
    return tuple(notes)
