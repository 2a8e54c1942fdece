"""Collects the evidence of one node: its daemons, tables, links, queues, logs and packets.

The node may be broken. Nothing waits long: a daemon that does not answer is not asked again, and a
command that hangs is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rocelab.base.family import Family
from rocelab.base.files import untrusted_tail
from rocelab.lab.lab import RunningLab
from rocelab.lab.node import NamespaceNode
from rocelab.linux import namespaces, processes
from rocelab.observe.evidence.shelf import MOST_BYTES, EvidenceFolder

ANSWER_LIMIT_S = 5.0
COMMAND_TIMEOUT_S = 15.0
"""A hundred times the usual answer time: evidence is also collected on busy machines."""
CAPTURE_SNAP_BYTES = 256
CAPTURE_PACKETS = 50_000
"""File, what it holds, and the question, by daemon."""

COMMANDS = (
    ("links.json", "interfaces with statistics", ("ip", "-s", "-s", "-d", "-j", "link", "show")),
    ("addresses.json", "addresses", ("ip", "-j", "address", "show")),
    ("fib.json", "the kernel's routes", ("ip", "-d", "-N", "-j", "route", "show", "table", "all")),
    ("nexthops.txt", "the kernel's next-hop objects", ("ip", "nexthop", "show")),
    ("rules.json", "the kernel's routing rules", ("ip", "-j", "rule", "show")),
    ("neighbours.json", "the kernel's neighbours", ("ip", "-s", "-j", "neighbour", "show")),
    ("qdiscs.json", "queues with statistics", ("tc", "-s", "-j", "qdisc", "show")),
    ("sockets.txt", "TCP connections, BGP's among them", ("ss", "-t", "-i", "-n", "-a")),
)

IPV6_COMMANDS = tuple(
    (f"{file.removesuffix('.json')}-ipv6.json", f"{what}, IPv6's", (argv[0], "-6", *argv[1:]))
    for file, what, argv in COMMANDS
    if file in ("fib.json", "rules.json")
)
"""What labs with IPv6 are asked besides."""

_LIST_TRAFFIC_CONTROL = ("tc", "-s", "-force", "-batch", "-")
PROC = ("snmp", "snmp6", "netstat", "softnet_stat", "dev")


def collect_node(
    lab: RunningLab, name: str, shelf: EvidenceFolder, capture: Capture | None
) -> None:
    """Fill `shelf`; `capture` captures the node's packets meanwhile, if not None."""
    node = lab.node(name)
    if lab.fabric.node(name).is_switch:
        # In a lab that others deployed logs and files are anywhere.
        _daemons(node, lab, shelf, started_here=not lab.fabric.is_adopted)
    has_ipv6 = Family.IPV6 in lab.fabric.spec.addresses.families
    for file, what, command in (*COMMANDS, *(IPV6_COMMANDS if has_ipv6 else ())):
        shelf.keep(file, what, lambda argv=command: _ran(node, argv))  # type: ignore[misc]
    _traffic_control(node, _interfaces(lab, name), shelf)
    for proc_name in PROC:
        path = Path("/proc/thread-self/net", proc_name)
        shelf.keep(
            f"proc-{proc_name}.txt",
            f"/proc/net/{proc_name}",
            lambda path=path: namespaces.inside(node.netns, path.read_bytes),  # type: ignore[misc]
        )
    if capture is not None:
        capture.finish()


def _interfaces(lab: RunningLab, name: str) -> tuple[str, ...]:
    return tuple(link.port(name).interface for link in lab.fabric.links_of[name])


def _ran(node: NamespaceNode, argv: Sequence[str]) -> str:
    """The output of a command run in the node. Raises OSError, SubprocessError, RocelabError."""
    done = node.run_tool(argv, timeout_s=COMMAND_TIMEOUT_S)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip() or f"exit status {done.returncode}")
    return done.stdout


def _daemons(
    node: NamespaceNode, lab: RunningLab, shelf: EvidenceFolder, *, started_here: bool
) -> None:
    alive, names = node.daemons(), lab.daemons_of(node.name)
    families = {Family.IPV4, *lab.fabric.spec.addresses.families}
    states = {name: _state(alive.get(name)) for name in names}
    shelf.keep("daemons.json", "daemons and their state", lambda: json.dumps(states, indent=1))
    if started_here:
        _whole_file(node, shelf)
    for name in names:
        if started_here:
            _started_with(node, name, shelf)
        answers = True
        for question in node.stack.questions.get(name, ()):
            if question.family not in families:
                continue
            file, what = question.file, question.what
            if not answers:
                shelf.miss(file, what, f"{name} did not answer an earlier question")
                continue
            answers = shelf.keep(
                file,
                what,
                lambda name=name, question=question: node.stack.answer(  # type: ignore[misc]
                    node.daemon_files, name, question.command, ANSWER_LIMIT_S
                ),
            )


def _started_with(node: NamespaceNode, name: str, shelf: EvidenceFolder) -> None:
    log, configuration = node.daemon_files.log(name), node.daemon_files.configuration(name)
    shelf.keep(f"{name}.log", f"log of {name}", lambda: untrusted_tail(log, MOST_BYTES))
    what = f"configuration that {name} was started with"
    shelf.keep(f"{name}.conf", what, lambda: configuration.read_bytes())


def _whole_file(node: NamespaceNode, shelf: EvidenceFolder) -> None:
    """The file of all daemons, where the switch has one."""
    whole = node.daemon_files.configuration("frr")
    if whole.exists():
        shelf.keep("frr.conf", "the switch's own file", lambda: whole.read_bytes())


def _state(pid: int | None) -> dict[str, object]:
    """A process's id and state in the words of /proc/PID/status, such as `T (stopped)`."""
    if pid is None:
        return {"pid": None, "state": "not running"}
    fields = processes.status_of(pid)
    if not fields:
        return {"pid": None, "state": "not running"}
    return {"pid": pid, "state": fields.get("State", ""), "resident": fields.get("VmRSS", "")}


def _traffic_control(node: NamespaceNode, interfaces: Sequence[str], shelf: EvidenceFolder) -> None:
    """Classes and filters, which tc lists per interface: all in one process."""
    batch = "".join(
        f"class show dev {name}\nfilter show dev {name} ingress\nfilter show dev {name} egress\n"
        for name in interfaces
    )

    def listed() -> str:
        done = namespaces.inside(
            node.netns,
            lambda: subprocess.run(
                _LIST_TRAFFIC_CONTROL,
                input=batch,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            ),
        )
        return done.stdout

    shelf.keep("traffic-control.txt", "classes and filters of every port", listed)


class Capture:
    """Packets of all ports of a node in one file, from now for `capture_s` seconds."""

    _FILE, _WHAT = "packets.pcap", "packets of all ports, as of `tcpdump -i any`"

    def __init__(self, node: NamespaceNode, shelf: EvidenceFolder, capture_s: float) -> None:
        self._shelf = shelf
        self._limit_s = capture_s + COMMAND_TIMEOUT_S
        # `timeout` ends it even if this process is killed, so that nothing is left behind.
        argv = ["timeout", "--signal=INT", f"--kill-after={COMMAND_TIMEOUT_S}", str(capture_s)]
        argv += ["tcpdump", "-i", "any", "-n", "-s", str(CAPTURE_SNAP_BYTES), "-Z", "root"]
        argv += ["-c", str(CAPTURE_PACKETS), "--time-stamp-precision=nano", "-w", "-"]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with shelf.folder.create(self._FILE, 0o600) as file:
                self._process = namespaces.inside(
                    node.netns,
                    lambda: subprocess.Popen(
                        argv,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.PIPE,
                        process_group=0,
                    ),
                )
        except OSError as error:
            shelf.miss(self._FILE, self._WHAT, str(error))

    def kill(self) -> None:
        """End it at once. Idempotent."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Wait until nothing of it runs, while no other thread does: tcpdump keeps its end of the
        pipe as long as it can write."""
        if self._process is not None and self._process.stderr and not self._process.stderr.closed:
            self._process.communicate()

    def finish(self) -> None:
        """Wait for its end."""
        if self._process is None:
            return
        try:
            _, said = self._process.communicate(timeout=self._limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            _, said = self._process.communicate()
        # Its header at least, if it could capture.
        if self._shelf.folder.size(self._FILE):
            self._shelf.note(self._FILE, self._WHAT)
        else:
            self._shelf.folder.remove(self._FILE)
            lines = said.decode(errors="replace").strip().splitlines()
            self._shelf.miss(self._FILE, self._WHAT, lines[-1] if lines else "tcpdump ended")
