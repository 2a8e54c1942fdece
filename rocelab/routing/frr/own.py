"""The configuration of switches by the user's own files and templates, and FRR's check of them.

A switch with a file starts its daemons with a log and a name only; vtysh then gives each its part
of the file, as FRR's own start-up does. A switch with templates has a file for each daemon, ours
where the folder has none.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from rocelab.base.errors import InputError, MachineError, Problem, SpecError
from rocelab.base.sandbox import TemplateFolder
from rocelab.base.wording import listed, printable
from rocelab.labfile.configuration import TemplatesSpec
from rocelab.labfile.frr_file import START_ORDER, FrrFile, read_frr_file
from rocelab.linux import linkkinds
from rocelab.planning.configured import files_of
from rocelab.planning.fabric import Fabric, Node
from rocelab.routing.frr.configuration import (
    base_configuration,
    configuration_bodies,
    daemons,
    frr_configuration,
    policy_of,
    variables,
)
from rocelab.routing.frr.installation import FrrInstallation

INTEGRATED = "frr"
"""The name of the file that is for all daemons."""
DATACENTER = "datacenter"
CHECK_TIMEOUT_S = 60.0
_REFUSAL = re.compile(r"line (\d+): (% .*?)(?:\[\d+\])?: ?(.*)")


def daemons_of(fabric: Fabric, node: Node) -> tuple[str, ...]:
    """The daemons of a switch, in start order."""
    routing, file = fabric.spec.routing, files_of(fabric.spec).get(node.name)
    listed_here = routing.daemons.get(node.name) or routing.daemons.get(node.role.name)
    if listed_here is not None:
        names = {"zebra", *listed_here}
    elif file is not None:
        names = set(file.daemons)
    else:
        templates = routing.templates
        more = () if templates is None else templates.daemons_for(node.name, node.role.name)
        names = {*daemons(fabric), *more}
    return tuple(name for name in START_ORDER if name in names)


def configuration_of(
    fabric: Fabric, node: Node, names: Sequence[str], log_folder: Path, *, interfaces: bool
) -> Mapping[str, str]:
    """Configuration text of each of these daemons by name, and of all by INTEGRATED if the switch
    has a file. Raises SpecError for a template's mistake, ValueError for a server."""
    routing, file = fabric.spec.routing, files_of(fabric.spec).get(node.name)
    defaults = DATACENTER if file is None else file.defaults
    texts: dict[str, str] = {}
    if file is not None:
        texts[INTEGRATED] = file.text + "".join(_added(file))
    else:
        of_kit = frr_configuration(fabric, node, log_folder, interfaces=interfaces)
        texts |= {name: text for name, text in of_kit.items() if name in names}
        if routing.templates is not None:
            texts |= _from_templates(
                routing.templates, fabric, node, names, log_folder, interfaces=interfaces
            )
    others = [name for name in names if name not in texts]
    return texts | {name: base_configuration(node, name, log_folder, defaults) for name in others}


def _added(file: FrrFile) -> Iterator[str]:
    """What the kit adds to a file. bgpd logs sessions that go up and down. ospfd leaves neighbours'
    hardware addresses alone: the kit sets them for good, and a request of ospfd's makes the kernel
    forget that."""
    if file.asn is not None:
        yield f"router bgp {file.asn}\n bgp log-neighbor-changes\nexit\n"
    yield from (f"{block}\n no proactive-arp\nexit\n" for block in file.ospf)


def _from_templates(
    templates: TemplatesSpec,
    fabric: Fabric,
    node: Node,
    names: Sequence[str],
    log_folder: Path,
    *,
    interfaces: bool,
) -> Iterator[tuple[str, str]]:
    folder = TemplateFolder(templates.texts, "frr", templates.folder)
    known = {
        **variables(fabric, node, interfaces=interfaces),
        **template_variables(fabric, node),
    }
    for daemon in names:
        name = templates.name_for(daemon, node.name, node.role.name)
        if name is not None:
            here = known | {"daemon": daemon, "defaults": DATACENTER, "log_folder": log_folder}
            yield daemon, with_log(folder.render(name, here), daemon, node, log_folder)


def bodies_of(fabric: Fabric, node: Node) -> tuple[Sequence[str], str]:
    """The configuration of a switch without names and logs, addresses included, for one file that
    all daemons read: a text of each daemon or of all, and the profile of `frr defaults`. Raises as
    `configuration_of`."""
    file, templates = files_of(fabric.spec).get(node.name), fabric.spec.routing.templates
    if file is not None:
        return ["".join((_body(file), *_added(file)))], file.defaults
    bodies = dict(configuration_bodies(fabric, node))
    if templates is not None:
        names = daemons_of(fabric, node)
        made = _from_templates(templates, fabric, node, names, Path(), interfaces=True)
        bodies |= {daemon: _body(read_frr_file(text)) for daemon, text in made}
    return list(bodies.values()), DATACENTER


def _body(file: FrrFile) -> str:
    lines = file.text.splitlines()
    left_out = ("frr ", "line vty")
    return "".join(f"{line}\n" for line in lines if line and not line.startswith(left_out))


def template_variables(fabric: Fabric, node: Node) -> Mapping[str, object]:
    """What templates of users have besides what the kit's own are rendered with."""
    return {
        "lab": fabric.name,
        "role": node.role.name,
        "zone": node.zone,
        "links": [
            {
                "interface": link.port(node.name).interface,
                "address": link.port(node.name).address,
                "neighbor": link.far(node.name).node,
                "neighbor_role": link.far(node.name).role.name,
                "neighbor_address": link.far(node.name).address,
                "neighbor_asn": fabric.node(link.far(node.name).node).asn,
                "neighbor_loopback": fabric.node(link.far(node.name).node).loopback,
                "rate_bps": link.rate_bps,
                "mtu": link.mtu,
                "is_to_server": not link.is_between_switches,
            }
            for link in fabric.links_of[node.name]
        ],
        "switches": [
            {
                "name": other.name,
                "role": other.role.name,
                "asn": other.asn,
                "loopback": other.loopback,
            }
            for other in fabric.switches
        ],
    }


def with_log(text: str, daemon: str, node: Node, log_folder: Path) -> str:
    """The text of a template with the kit's log and name, whatever it sets of its own. Raises
    SpecError for lines that reach beyond the switch."""
    file = read_frr_file(text)
    if file.problems:
        where = f"{daemon}.conf of {node.name}"
        raise SpecError(
            [Problem(where, one.line, "", one.message, one.hint) for one in file.problems]
        )
    kept = [line for line in file.text.splitlines() if line]
    head_lines = (
        f"hostname {node.name}",
        f"log file {log_folder}/{daemon}.log informational",
        "log timestamp precision 6",
    )
    # `frr defaults` comes before all else.
    head = 1 if kept and kept[0].startswith("frr defaults") else 0
    return "".join(f"{line}\n" for line in (*kept[:head], *head_lines, *kept[head:]))


def check_configuration(fabric: Fabric, installation: FrrInstallation) -> None:
    """Have FRR read the configuration of each switch of a lab with files, templates or policies of
    its own, without running it. Raises SpecError with the lines that it refuses, InputError for a
    daemon that it lacks and for what this kernel lacks."""
    if not needs_check(fabric):
        return
    lacking = {
        name
        for node in fabric.switches
        for name in daemons_of(fabric, node)
        if not Path(installation.place, name).exists()
    }
    if lacking:
        raise InputError(
            f"FRR {installation.version} of {installation.place} has no "
            f"{listed(sorted(lacking), 'or')}",
            "install FRR's packages with it, or name another FRR with --frr",
        )
    problems: list[Problem] = []
    for node in fabric.switches:
        problems += _problems(fabric, node, installation)
    if problems:
        raise SpecError(problems)


def check_sessions(fabric: Fabric) -> None:
    """Raises InputError where the two ends of a session have other passwords."""
    if not fabric.spec.routing.policy:
        return
    for link in fabric.sessions:
        ends = [fabric.node(port.node) for port in (link.a, link.b)]
        near, far = (policy_of(fabric, end).password for end in ends)
        if near and far and near != far:
            raise InputError(
                f"routing.policy gives the two ends of {link.name} different passwords",
                "give one end none: a session has that of either end",
            )


def needs_check(fabric: Fabric) -> bool:
    """Whether switches run something of the user's own."""
    routing = fabric.spec.routing
    return bool(routing.config or routing.templates or routing.policy)


def _problems(fabric: Fabric, node: Node, installation: FrrInstallation) -> Iterator[Problem]:
    config, file = fabric.spec.routing.config, files_of(fabric.spec).get(node.name)
    names = daemons_of(fabric, node)
    texts = configuration_of(fabric, node, names, Path("/var/log/frr"), interfaces=True)
    if file is None:
        for daemon, text in texts.items():
            for number, message in _refused(text, installation):
                line = text.splitlines()[number - 1].strip()
                where = f"{daemon}.conf of {node.name}"
                yield Problem(where, number, "", f"FRR refuses `{printable(line)}`: {message}")
        return
    path = (config.path_of(node.name) if config is not None else None) or node.name
    if file.vrf is not None and not linkkinds.is_known("vrf"):
        yield Problem(
            printable(path),
            None,
            "",
            f"`{file.vrf}` needs a VRF, and this kernel has none (CONFIG_NET_VRF)",
        )
    for number, message in _refused(file.text, installation):
        yield Problem(printable(path), number, "", f"FRR {installation.version}: {message}")


@cache
def _refused(text: str, installation: FrrInstallation) -> tuple[tuple[int, str], ...]:
    """The lines that vtysh refuses, with its message. Raises MachineError if it does not run."""
    if not installation.vtysh:
        return ()
    inside = () if installation.root == "/" else ("chroot", installation.root)
    try:
        done = subprocess.run(
            (*inside, installation.vtysh, "-C", "-f", "/dev/stdin"),
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CHECK_TIMEOUT_S,
            check=False,
            env={"PATH": os.defpath, **installation.environment},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"vtysh -C does not run: {error}") from None
    matches = map(_REFUSAL.match, (done.stdout + done.stderr).splitlines())
    refused = tuple(
        (int(match[1]), printable(f"{match[2].removeprefix('% ').lower()}: {match[3].strip()}"))
        for match in matches
        if match
    )
    if done.returncode != 0 and not refused:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise MachineError(f"vtysh -C ends with {done.returncode}: {said[-1] if said else ''}")
    return refused


def loading(daemon: str, folder: Path) -> list[str]:
    """The arguments of vtysh that give a daemon which was started its part of the switch's file;
    none if there is no file."""
    file = folder / f"{INTEGRATED}.conf"
    return ["-d", daemon, "-f", str(file)] if file.exists() else []
