"""Brings a lab up: a `Fabric` becomes nodes, links, queues and routers that have converged.

The stages are nodes (made by a runtime), links, daemons, convergence, scheme and delays. The record
is written first (`rocelab.record`), so that `rocelab.lab.teardown` finds everything
that a killed command left.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version

from rocelab.base.doors import plugins
from rocelab.base.errors import MachineError
from rocelab.base.files import make_folder, write_file
from rocelab.base.interruption import shielded
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.base.workers import workers
from rocelab.dataplane.impairments import cables
from rocelab.dataplane.pfc import control as pfc
from rocelab.dataplane.pfc.program import PausePorts
from rocelab.dataplane.queues.engine import SwitchQueues, keep_order
from rocelab.dataplane.steering import Steering
from rocelab.dataplane.tunnels.program import TunnelPorts
from rocelab.lab import hosts, wiring
from rocelab.lab.convergence import (
    ConvergenceWait,
    NotConvergedError,
    convergence_timeout_s,
    wait_for_bfd,
)
from rocelab.lab.node import NamespaceNode, VethLink
from rocelab.lab.providers import NodeProvider
from rocelab.lab.segments import await_segments
from rocelab.lab.stillness import StillnessWait
from rocelab.lab.teardown import take_down, tear_down
from rocelab.lab.tunnels import tunnel_messages, tunnel_settings
from rocelab.labfile.observed import with_observed
from rocelab.linux import namespaces, netlink
from rocelab.linux import settings as kernel
from rocelab.linux.fibwatch import FibWatch
from rocelab.linux.rights import check_rights, may_prioritise
from rocelab.planning.build import plan
from rocelab.planning.delays import lab_delays_ns
from rocelab.planning.fabric import Fabric, Node
from rocelab.planning.settings import node_settings, port_settings
from rocelab.record import LabFiles, Record, State, check_absent, locked, write_record
from rocelab.routing import daemons
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr import memory
from rocelab.routing.frr.kind import FrrMemory
from rocelab.routing.stack import (
    Installation,
    RoutingStack,
    read_installation,
    stack_for,
    write_installation,
)

LATE_LEAVES_PER_CPU = 5
"""A CPU starts the daemons of some nine switches a second, if it does nothing else."""


class NetworkDataplane:
    """The queues of a network's switches and its lossless classes, while the lab comes up."""

    def __init__(self, network: Fabric, stack: ExitStack) -> None:
        """`stack` closes what is only needed meanwhile. Raises as `SwitchQueues`,
        `PausePorts` and `TunnelPorts`."""
        self.files = LabFiles.of(network)
        self.queues = stack.enter_context(SwitchQueues(network, self.files))
        self.pauses = stack.enter_context(PausePorts(network, self.files, self.queues.engine))
        self._tunnels = stack.enter_context(TunnelPorts(network))
        name = network.network_name
        where = "" if name is None else f"network {name}: "
        self.notes = (f"{where}{self.queues.note}",) if self.queues.note else ()

    @property
    def slots(self) -> Mapping[tuple[str, str], int]:
        """The slot of each port, by node and interface."""
        return {**self.queues.slots, **self.pauses.slots}

    def messages_of(self, node: str) -> list[bytes]:
        """The messages that give the node's ports of the network queues, pauses and tunnels."""
        return [
            *self.queues.messages_of(node),
            *self.pauses.messages_of(node),
            *self._tunnels.messages_of(node),
        ]

    def start(self) -> None:
        """Start what pauses."""
        if self.pauses.plan is not None:
            pfc.start(self.pauses.plan, self.files)


class LabRuntime:
    """Realises a fabric on this machine and owns what it creates."""

    def __init__(self, fabric: Fabric, provider: NodeProvider) -> None:
        self.fabric = fabric
        self.provider = provider
        self.files = LabFiles.of(fabric)
        self.stage_seconds: dict[str, float] = {}
        self.notes: tuple[str, ...] = ()
        self.was_brought_up = False
        """Whether this object brought the lab up: its caller then takes it down."""

    @property
    def installation(self) -> Installation:
        """The routing stack that the switches run. Raises FileNotFoundError before nodes are
        made."""
        return read_installation(self.files.root)

    def daemons_of(self, node: Node) -> tuple[str, ...]:
        """The daemons that a node runs, in start order. Raises as `installation` does."""
        if not node.is_switch:
            return ()
        fabric = self.fabric.network_of(node.name)
        return self.installation.daemons(stack_for(fabric).daemons(fabric, node))

    def node(self, name: str) -> NamespaceNode:
        """Raises KeyError when the fabric has no such node."""
        return self.provider.node(self.files, self.fabric.node(name).name)

    def link(self, name: str) -> VethLink:
        """Raises KeyError when the fabric has no such link."""
        link = self.fabric.link_by_name[name]
        return VethLink(link, self.node(link.a.node), self.node(link.b.node))

    def up(
        self,
        progress: ProgressSink = no_progress,
        on_unconverged: Callable[[NotConvergedError], str] | None = None,
        *,
        keep: bool = False,
    ) -> None:
        """Create everything and return when every FIB is complete.

        Raises MachineError if this machine cannot run it, NotConvergedError if routing does not
        converge in time; either way nothing is left behind, unless `keep` is True: a lab that
        does not converge stays up then. `on_unconverged` is called with that error before the lab
        is taken down, and returns a line to add to it. Raises InputError if the lab is up already
        or another command works on it, or no lab has its scheme.
        """
        self.notes = check_rights()
        for network in self.fabric.networks:
            stack_for(network).check(network)
        self.provider.check(self.fabric)
        if self.fabric.spec.management:
            # Imported here, so that other labs do not load its libraries.
            from rocelab.lab import management

            management.check(self.fabric)
        cables.check(self.fabric)
        for network in self.fabric.networks:
            network.spec.scheme.check_lab()
        lab = self.fabric.name
        with locked(lab) as files, shielded(f"lab {lab} is taken down") as shield:
            check_absent(files)
            unconverged: NotConvergedError | None = None
            try:
                with shield.lifted():
                    self._write_record(State.STARTING)
                    try:
                        self._build(progress)
                    except NotConvergedError as error:
                        if on_unconverged is not None:
                            error.message += f"\n{on_unconverged(error)}"
                        if not keep:
                            raise
                        self._end_start_up()
                        unconverged = error
                    self._finish(progress)
                    self._write_record(State.RUNNING)
                self.was_brought_up = True
            except BaseException:
                tear_down(files, progress)
                raise
            if unconverged is not None:
                unconverged.hint = (
                    f"the lab is kept: look with `rocelab status {lab}` and `rocelab vtysh {lab} "
                    f"{unconverged.nodes[0]}`, then take it down with `rocelab down {lab}`"
                )
                raise unconverged

    def down(self, progress: ProgressSink = no_progress) -> None:
        """Remove everything that `up` created. Idempotent."""
        take_down(self.fabric.name, progress)

    def _write_record(self, state: State) -> None:
        spec = self.fabric.spec.model_dump(mode="json")
        now_s = time.clock_gettime(time.CLOCK_REALTIME)
        write_record(
            self.files,
            Record(
                lab=self.fabric.name,
                runtime=self.provider.kind,
                state=state,
                started_unix_s=now_s,
                version=version("rocelab"),
                spec=spec,
                machine_netns=namespaces.inode_of(os.getpid()),
                plugins=list(plugins()),
            ),
        )

    def _build(self, progress: ProgressSink) -> None:
        """Make nodes and links, start daemons and wait for routes."""
        raise_descriptor_limit(3 * len(self.fabric.nodes) + 256)
        with self._stage("nodes"):
            self._make_nodes(progress)
        netns_of = {node.name: self.files.netns_of(node.name) for node in self.fabric.nodes}
        with namespaces.opened(netns_of) as descriptors:
            with self._stage("links"), ExitStack() as stack:
                dataplanes = [NetworkDataplane(network, stack) for network in self.fabric.networks]
                self.notes += tuple(note for dataplane in dataplanes for note in dataplane.notes)
                self._make_links(descriptors, dataplanes, progress)
                for dataplane in dataplanes:
                    dataplane.start()
            switches = {node.name: descriptors[node.name] for node in self.fabric.switches}
            with FibWatch(switches) as watch:
                with self._stage("daemons"):
                    self._start_daemons(progress)
                with self._stage("convergence"):
                    if self.fabric.spec.routing.is_own:
                        self._await_stillness(watch, progress)
                    else:
                        self._await_routes(watch, progress)
                    await_segments(self.fabric, self.node, progress)

    def _await_routes(self, watch: FibWatch, progress: ProgressSink) -> None:
        """Return when all has come up that the fabric's policy says."""
        wait = ConvergenceWait(self.fabric, self.node)
        timeout_s = convergence_timeout_s(self.fabric)
        wait.run(watch, timeout_s, progress)
        self._end_start_up()
        self._await_bfd(timeout_s, progress)
        # A session that fell meanwhile took its routes with it.
        if wait.run(watch, timeout_s, progress):
            self._await_bfd(timeout_s, progress)

    def _await_bfd(self, timeout_s: float, progress: ProgressSink) -> None:
        for network in self.fabric.networks:
            wait_for_bfd(network, self.node, timeout_s, progress)

    def _await_stillness(self, watch: FibWatch, progress: ProgressSink) -> None:
        """Return when the lab is whole by its own routing; its fabric then has what it has."""
        wait = StillnessWait(self.fabric, self.node, self.daemons_of)
        observed = wait.run(watch, convergence_timeout_s(self.fabric), progress)
        self.fabric = plan(with_observed(self.fabric.spec, observed))
        for node in self.fabric.switches:
            self._keep_configuration(node)
        self._end_start_up()

    def _keep_configuration(self, node: Node) -> None:
        """Keep what a switch's daemons run, which `rocelab.lab.differences` compares with later."""
        handle = self.node(node.name)
        files = handle.daemon_files
        for daemon in self.daemons_of(node):
            with suppress(OSError):
                text = handle.stack.running_configuration(files, daemon)
                write_file(files.whole(daemon), text)

    def _finish(self, progress: ProgressSink) -> None:
        """Add what a lab has beside its routes."""
        for network in self.fabric.networks:
            if network.spec.scheme.kind != "ecmp":
                with self._stage("scheme"):
                    Steering(network, LabFiles.of(network)).set_scheme(
                        network.spec.scheme, progress
                    )
        if lab_delays_ns(self.fabric):
            with self._stage("delays"):
                cables.set_delays(self.fabric, self.files, progress)
        if self.fabric.spec.management:
            from rocelab.lab import management

            with self._stage("management"):
                management.start(self.fabric, self.files, progress)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.stage_seconds[name] = time.monotonic() - started

    def _make_nodes(self, progress: ProgressSink) -> None:
        make_folder(self.files.nodes)
        for node in self.fabric.nodes:
            make_folder(self.files.node(node.name))
            if node.is_switch:
                daemons.make_folders(DaemonFiles(self.files.node(node.name)))
        if self.fabric.parts:
            make_folder(self.files.networks)
        for network in self.fabric.networks:
            make_folder(LabFiles.of(network).dataplane, exist_ok=True)
        for folder in (self.files.netns, self.files.mounts):
            make_folder(folder)
            namespaces.mount_tmpfs(folder)
        hosts.write_hosts(self.fabric, self.files)
        hosts.make_machine(self.files)
        self.provider.make_nodes(self.fabric, self.files, progress)
        installation = self.provider.installation(self.fabric, self.files)
        write_installation(self.files.root, installation)
        untested_release = stack_for(self.fabric).untested(installation.version)
        self.notes += () if untested_release is None else (untested_release,)
        if self.fabric.switches:
            memory.write_memory(self.files.root, self._memory())

    def _memory(self) -> memory.Memory:
        """How daemons will use memory: as asked, as far as a trial in a switch allows."""
        if self.provider.frr_memory is FrrMemory.PLAIN or not stack_for(self.fabric).is_lean:
            return memory.PLAIN
        node = self.node(self.fabric.switches[0].name)
        try:
            write_file(node.daemon_files.library, memory.library().read_bytes())
            trial = memory.tried(node.try_bgpd, node.daemon_files.library)
        except (OSError, MachineError, subprocess.SubprocessError) as error:
            trial = memory.Memory(FrrMemory.LEAN, problem=str(error))
        self.notes += () if trial.note is None else (trial.note,)
        return trial

    def _make_links(
        self,
        descriptors: Mapping[str, int],
        dataplanes: Sequence[NetworkDataplane],
        progress: ProgressSink,
    ) -> None:
        """Make every veth pair, queue and address, and set upper ends up: carrier then needs one
        step. Ports are made with what their nodes' settings say."""
        fabric, links = self.fabric, self.fabric.links
        slots = {place: slot for part in dataplanes for place, slot in part.slots.items()}
        places = frozenset(place for part in dataplanes for place in part.queues.places)

        # Nodes of a network are made alike: what the first has of its machine, the others have.
        inherited: dict[tuple[str | None, bool], Mapping[str, str]] = {}

        def set_up(name: str) -> None:
            node, network = fabric.node(name), fabric.network_of(name)
            kernel.write_settings(node_settings(network, node))
            kind = (network.network_name, node.is_switch)
            ports = inherited.get(kind, port_settings(network, node))
            inherited.setdefault(kind, kernel.write_port_settings(ports))

        namespaces.inside_each(descriptors, set_up)
        with netlink.open_socket() as channel:
            step = 256
            for start in range(0, len(links), step):
                batch = links[start : start + step]
                netlink.send_batch(channel, wiring.create_links(batch, descriptors, slots))
                progress(Progress("links", min(start + step, len(links)), len(links)))

        def configure(name: str) -> None:
            node = fabric.node(name)
            ready = fabric.downlinks(name) if node.is_switch else fabric.links_of[name]
            messages = wiring.configure_node(fabric, node)
            for part in dataplanes:
                messages += part.messages_of(name)
            messages += tunnel_messages(fabric, node)
            for link in ready:
                messages += wiring.bring_up(link, name)
            if not node.is_switch:
                messages += wiring.server_routes(fabric, name)
            # The answers to a whole batch of small messages queue up in this buffer.
            with netlink.open_socket(receive_buffer_bytes=8 << 20) as channel:
                netlink.send_batch(channel, messages)
            kernel.write_settings(tunnel_settings(fabric, node))
            keep_order(fabric, name, places)

        namespaces.inside_each(descriptors, configure)

    def _start_daemons(self, progress: ProgressSink) -> None:
        fabric = self.fabric
        preloads = memory.read_memory(self.files.root).preloads
        library = memory.library().read_bytes() if preloads else None
        # Without this right, a raised niceness could not be lowered again.
        in_order = may_prioritise()
        stack, installation = stack_for(fabric), self.installation

        def start(name: str) -> None:
            node, planned, network = self.node(name), fabric.node(name), fabric.network_of(name)
            names = installation.daemons(stack.daemons(network, planned))
            logs = node.daemon_files.daemon_folder
            node.configure_daemons(
                stack.configuration(network, planned, names, logs, interfaces=False)
            )
            ports_first = stack.opens_from_above(network) or not network.numbered
            if library is not None:
                write_file(node.daemon_files.library, library)
            uplinks = [
                message for link in fabric.uplinks(name) for message in wiring.bring_up(link, name)
            ]
            # bgpd hears of a port that goes down on two connections to zebra, its own and that of
            # its VNC part, and forgets the neighbour twice. If zebra comes late to the kernel's
            # reports of a port that came up, the first of which is of a port without carrier, a
            # router advertisement may be heard between the two: bgpd forgets it for good. A session
            # that an upper end has opened by then would be reset.
            if ports_first:
                node.send(uplinks)
            for daemon in names:
                leaf = in_order and planned.is_leaf
                node.start_daemon(daemon, start_niceness(stack, daemon, leaf=leaf))
            if not ports_first:
                node.send(uplinks)

        total = len(fabric.switches)
        cpus = os.cpu_count() or 1
        with workers(2 * cpus) as pool:
            starts = [pool.submit(start, node.name) for node in start_order(fabric, cpus)]
            for done, outcome in enumerate(as_completed(starts), start=1):
                outcome.result()
                progress(Progress("daemons", done, total))

    def _end_start_up(self) -> None:
        """Give all daemons equal priority again, before anything is measured."""
        if not may_prioritise():
            return
        for node in self.fabric.switches:
            for pid in self.node(node.name).daemons().values():
                daemons.set_niceness(pid, 0)


def start_order(fabric: Fabric, cpus: int) -> list[Node]:
    """The switches in the order in which their daemons start: upper tiers first.

    Where upper ends open the sessions, most leaves come before them: the others start within the
    second until upper ends try for the first time. The next try is a second later.
    """
    switches = sorted(fabric.switches, key=lambda node: -node.role.tier)
    if not stack_for(fabric).opens_from_above(fabric):
        return switches
    upper = [node for node in switches if not node.is_leaf]
    leaves = [node for node in switches if node.is_leaf]
    early = max(0, len(leaves) - LATE_LEAVES_PER_CPU * cpus)
    return [*leaves[:early], *upper, *leaves[early:]]


def start_niceness(stack: RoutingStack, daemon: str, *, leaf: bool) -> int:
    """The niceness of a daemon while the fabric starts.

    One order costs least: upper tiers announce, then leaves decide, then kernels get routes. A
    stage that runs before the one above has finished repeats its work for every later path: an
    18-way route would be installed up to 18 times.
    """
    if not leaf:
        return 0
    return 19 if daemon == stack.kernel_daemon else 10


def raise_descriptor_limit(wanted: int) -> None:
    """Let this process open `wanted` files. Raises MachineError if it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise MachineError(
            f"this needs {wanted} open files and the limit is {hard}",
            "raise it with `ulimit -Hn`",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
