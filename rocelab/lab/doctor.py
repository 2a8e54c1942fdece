"""Checks whether this machine can run a lab, by trying each thing that a lab uses.

`diagnose` returns one `Check` per thing: what was found, what it is for and how to install it on
Debian or Ubuntu. Kernel features are tried in a temporary namespace; programs are started, not just
looked up.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.dataplane.queues import marker
from rocelab.lab.checks import (
    PROGRAM_TIMEOUT_S,
    SETUP,
    Check,
    program_check,
    program_version,
)
from rocelab.lab.providers.door import RUNTIMES
from rocelab.labfile.stacks import DEFAULT_STACK
from rocelab.linux import bpf, links, namespaces, netlink, probes, rights
from rocelab.linux.probes import ProbeOutcome
from rocelab.linux.rights import CAPABILITIES, effective_capabilities
from rocelab.linux.settings import (
    ALL,
    DEFAULT,
    port_setting,
    read_settings,
    write_port_settings,
)
from rocelab.planning.settings import SERVER_PORTS
from rocelab.routing.frr import memory
from rocelab.routing.frr.installation import (
    TESTED_RELEASES,
    find_installation,
    frr_folder,
    untested,
)
from rocelab.routing.stack import STACKS

KERNEL_MODULES = (
    "Ubuntu: linux-modules-extra-$(uname -r); Debian: linux-image-amd64, not its cloud variant"
)
BPF_PROGRAM = """\
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("tc") int accept(struct __sk_buff *skb) { return skb->len ? 0 : 2; }
"""


LEAST = {
    "ipv4/neigh/default/gc_thresh3": 1024,
    "ipv4/neigh/default/mcast_solicit": 1,
    "core/netdev_max_backlog": 1000,
    "core/bpf_jit_enable": 1,
    "ipv4/tcp_rmem": 131072,
    "ipv4/tcp_wmem": 65536,
}
"""Sysctls of the machine that a lab does not set, and the least that it can do with: the kernel's
own; of several numbers the last, the maximum. A namespace inside of which this runs may not have
all of them."""
_KERNELS_OWN = {
    **{f"ipv4/{name}": "1" for name in ("accept_redirects", "send_redirects")},
    **{"ipv4/accept_source_route": "1", "ipv6/disable_ipv6": "0"},
}
"""What every machine has of the settings that a lab changes."""


@dataclass(frozen=True, slots=True)
class MachineDiagnosis:
    """Every check, in display order."""

    checks: tuple[Check, ...]

    @property
    def can_run(self) -> bool:
        """Whether a lab can run here."""
        return all(check.ok for check in self.checks if check.needed)


@dataclass(frozen=True, slots=True)
class KernelFeature:
    """How a probe of `rocelab.linux.probes` is shown."""

    probe: str
    name: str
    needed: bool
    purpose: str
    remedy: str


KERNEL_FEATURES = (
    KernelFeature(
        "namespaces",
        "network namespaces",
        True,
        "every switch and server is one",
        "a kernel with CONFIG_NET_NS, and in a container the right to mount (CAP_SYS_ADMIN)",
    ),
    KernelFeature("veth", "veth", True, "every link is a pair of them", "modprobe veth"),
    KernelFeature(
        "hash policy",
        "multipath hash policy",
        True,
        "ECMP by ports as well as addresses",
        "a kernel with CONFIG_IP_ROUTE_MULTIPATH (those of Debian and Ubuntu have it)",
    ),
    KernelFeature(
        "hash seed",
        "multipath hash seed",
        False,
        "each switch hashes differently and paths can be predicted; without it every lab runs as "
        "with `hashing: 0`: all switches choose alike (polarized)",
        "Linux 6.11 or later. Debian 12: linux-image-6.12-amd64 (bookworm-security); Ubuntu 24.04: "
        "linux-generic-hwe-24.04",
    ),
    KernelFeature(
        "clsact", "clsact", False, "the place on a port where BPF programs run", KERNEL_MODULES
    ),
    KernelFeature(
        "cls_bpf",
        "cls_bpf",
        False,
        "BPF programs on ports: hashing on the destination QP, ECN marks",
        KERNEL_MODULES,
    ),
    KernelFeature("htb", "htb", False, "ports with a rate and queues", KERNEL_MODULES),
    KernelFeature("tbf", "tbf", False, "ports with a rate and one queue", KERNEL_MODULES),
    KernelFeature(
        "red", "red", False, "ECN marks by the kernel; cls_bpf does without it", KERNEL_MODULES
    ),
    KernelFeature("u32", "u32", False, "traffic classes where red marks", KERNEL_MODULES),
    KernelFeature(
        "netem", "netem", False, "links.delay without a process per switch", KERNEL_MODULES
    ),
    KernelFeature("bridge", "bridge", False, "tenants: leaves bridge their NICs", KERNEL_MODULES),
    KernelFeature(
        "vxlan", "VXLAN", False, "tenants: leaves send their packets to each other", KERNEL_MODULES
    ),
    KernelFeature(
        "vrf",
        "VRF",
        False,
        "configuration files of yours that have VRFs; tenants are bridged without, and not routed "
        "to each other",
        "a kernel with CONFIG_NET_VRF (those of Debian and Ubuntu have it)",
    ),
)


def diagnose() -> MachineDiagnosis:
    """Try everything that a lab uses. Takes about a second; needs root to try the kernel.

    Does not raise if something is missing: that is the result.
    """
    return MachineDiagnosis(
        (
            *capability_checks(effective_capabilities(Path("/proc/self/status").read_text())),
            *place_checks(),
            *kernel_checks(probes.probe_kernel()),
            port_settings_check(),
            machine_settings_check(read_settings(LEAST)),
            frr_check(),
            bfdd_check(),
            memory_check(),
            *(
                program_check(("vtysh", "--help"), "frr", "the command line of a switch"),
                program_check(("ip", "-V"), "iproute2", "looking into a node by hand"),
                program_check(("tcpdump", "--version"), "tcpdump", "packet captures"),
                program_check(("ping", "-V"), "iputils-ping", "pinging from node to node"),
            ),
            *stack_checks(),
            bpf_compiler_check(),
            queues_check(),
            *(check for runtime in RUNTIMES.all().values() for check in runtime.checks()),
            python_check(),
            *size_checks(),
        )
    )


def capability_checks(effective: int) -> list[Check]:
    """A check for each capability, given the CapEff bits."""
    return [
        Check(
            name=capability.name,
            ok=bool(effective >> capability.bit & 1),
            needed=capability.needed,
            found="present" if effective >> capability.bit & 1 else "missing",
            purpose=capability.purpose,
            remedy=capability.remedy,
        )
        for capability in CAPABILITIES
    ]


def place_checks() -> list[Check]:
    """A check for each place that a lab writes to outside its own folder."""
    places = (
        (rights.RUN, "/run", "what is on record of labs"),
        (rights.SETTINGS, "/proc/sys", "kernel settings of nodes"),
    )
    checks = []
    for path, name, purpose in places:
        ok = rights.is_writable(path)
        checks.append(
            Check(
                name=f"writable {name}",
                ok=ok,
                needed=True,
                found="writable" if ok else "read-only, or not ours",
                purpose=purpose,
                remedy="as root; in a container: --tmpfs /run, and --security-opt "
                "systempaths=unconfined for /proc/sys",
            )
        )
    return checks


def kernel_checks(outcomes: dict[str, ProbeOutcome]) -> list[Check]:
    """A check for each kernel feature, given the outcomes of the probes.

    If the namespace for the probes could not be made, each check says that it was not tried.
    """
    tried = outcomes["namespaces"]
    checks = []
    for feature in KERNEL_FEATURES:
        outcome = outcomes.get(feature.probe)
        checks.append(
            Check(
                name=feature.name,
                ok=outcome.ok if outcome else False,
                needed=feature.needed,
                found=outcome.found if outcome else f"not tried: {tried.found}",
                purpose=feature.purpose,
                remedy=feature.remedy
                if outcome and not outcome.denied
                else "run it as root: sudo .venv/bin/rocelab doctor",
            )
        )
    return checks


def port_settings_check() -> Check:
    """A new port has the settings that a lab gives it, whatever the machine's are."""
    try:
        inherited, refused = namespaces.on_own_thread(_try_port_settings)
    except OSError as error:
        ok, finding = False, f"not tried: {error.strerror}"
    else:
        ok = not refused
        finding = f"refused: {_shown(refused)}" if refused else "as the kernel's own"
        if ok and inherited:
            finding = f"set in every node; this machine's: {_shown(inherited)}"
    return Check(
        name="settings of ports",
        ok=ok,
        needed=True,
        found=finding,
        purpose="reverse-path filters, ARP and forwarding, of which nodes inherit the machine's",
        remedy="as root, and /proc/sys writable",
    )


def _try_port_settings() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """In a namespace of its own: the settings that a lab changes there, with their values, and
    those that a port then has otherwise. Raises OSError."""
    namespaces.unshare()
    names = {port_setting(name, where): name for where in (ALL, DEFAULT) for name in SERVER_PORTS}
    before = read_settings(names)
    write_port_settings(SERVER_PORTS)
    with netlink.open_socket() as channel:
        netlink.send_batch(channel, [links.veth(probes.PORT)])
        ports = {port.name: port.settings for port in links.read_links(channel)}
    after = ports[probes.PORT]
    return (
        {
            name: value
            for name, value in before.items()
            if value not in (SERVER_PORTS[names[name]], _KERNELS_OWN.get(names[name]))
        },
        {
            name: str(after[name])
            for name, value in SERVER_PORTS.items()
            if str(after.get(name, value)) != value
        },
    )


def machine_settings_check(values: Mapping[str, str]) -> Check:
    """What nodes have of the machine is enough for a lab. `values`: those of `LEAST` that are
    there."""
    poor = {name: value for name, value in values.items() if int(value.split()[-1]) < LEAST[name]}
    wanted = " ".join(
        shlex.quote(f"net.{name.replace('/', '.')}={_raised(value, LEAST[name])}")
        for name, value in poor.items()
    )
    return Check(
        name="the machine's settings",
        ok=not poor,
        needed=False,
        found=f"low: {_shown(poor)}" if poor else "enough",
        purpose="what nodes share or inherit: neighbours of management networks, packets that wait "
        "for a CPU, BPF programs as machine code, BGP's buffers",
        remedy=f"sysctl -w {wanted}",
    )


def _raised(value: str, least: int) -> str:
    """The value with `least` as its last number."""
    return " ".join((*value.split()[:-1], str(least)))


def _shown(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def frr_check() -> Check:
    """zebra and bgpd start, and the user they run as exists."""
    ok, finding = False, ""
    try:
        frr = find_installation()
        programs = ("zebra", "bgpd", *(("mgmtd",) if frr.has_mgmtd else ()))
        versions = [program_version((frr.program(name), "--version")) for name in programs]
        ok = None not in versions
        finding = (
            f"{versions[1]}, in {frr.folder}" if ok else f"daemons in {frr.folder} do not start"
        )
        if ok and untested(frr.version):
            finding += f"; untested: rocelab is tested with {' and '.join(TESTED_RELEASES)}"
    except MachineError as error:
        finding = error.message
    return Check(
        name="FRR zebra, bgpd",
        ok=ok,
        needed=True,
        found=finding,
        purpose="the routing of every switch",
        remedy=SETUP.format(package="frr"),
    )


def stack_checks() -> list[Check]:
    """Whether this machine has each routing stack but FRR."""
    checks = []
    for stack in STACKS.all().values():
        if stack.name == DEFAULT_STACK:
            continue
        ok, remedy = True, ""
        try:
            version = stack.find(None).version
            finding = stack.untested(version) or version
        except MachineError as error:
            ok, finding, remedy = False, error.message, error.hint or ""
        checks.append(
            Check(
                name=stack.title,
                ok=ok,
                needed=False,
                found=finding,
                purpose=f"labs with `routing.stack: {stack.name}`",
                remedy=remedy,
            )
        )
    return checks


def bfdd_check() -> Check:
    """bfdd starts."""
    version = None
    with contextlib.suppress(MachineError):
        version = program_version((str(frr_folder() / "bfdd"), "--version"))
    return Check(
        name="FRR bfdd",
        ok=version is not None,
        needed=False,
        found=version or "missing",
        purpose="labs with `bfd` in their routing",
        remedy=SETUP.format(package="frr"),
    )


def memory_check() -> Check:
    """This machine's bgpd takes the library that saves memory."""
    ok, finding = False, "not tried: needs root"
    if os.geteuid() == 0:
        try:
            lean = memory.tried(_bgpd_version_text, memory.library())
            ok, finding = lean.preloads, lean.problem or "bgpd preloads the library"
        except (OSError, MachineError, subprocess.SubprocessError) as error:
            finding = str(error)
    return Check(
        name="lean FRR",
        ok=ok,
        needed=False,
        found=finding,
        purpose="less memory for FRR's daemons (--frr-memory lean): about half in large labs",
        remedy=SETUP.format(package="clang"),
    )


def _bgpd_version_text(variables: Mapping[str, str]) -> str:
    return subprocess.run(
        (str(frr_folder() / "bgpd"), "--version"),
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
        env={"PATH": os.defpath, **variables},
    ).stderr


def bpf_compiler_check() -> Check:
    """clang compiles a program for BPF, with the kernel's and libbpf's headers."""
    ok, finding = compile_bpf(BPF_PROGRAM)
    return Check(
        name="BPF compiler",
        ok=ok,
        needed=False,
        found=finding,
        purpose="BPF programs on ports, compiled on this machine",
        remedy=SETUP.format(package="clang, libbpf-dev"),
    )


def queues_check() -> Check:
    """The program that marks packets at switch ports compiles, and the kernel takes it."""
    ok, finding = False, "not tried: needs root"
    if os.geteuid() == 0:
        try:
            bpf.LoadedObject(bpf.compiled(marker.SOURCE), {}).close()
            ok, finding = True, "the program loads"
        except OSError as error:
            finding = str(error)
    return Check(
        name="queues with BPF",
        ok=ok,
        needed=False,
        found=finding,
        purpose="ECN marks and counters per queue (queues.engine: bpf); red marks without it",
        remedy="as root, a kernel with CONFIG_DEBUG_INFO_BTF (those of Debian 12 and Ubuntu 22.04 "
        "and later have it), and " + SETUP.format(package="clang, libbpf-dev"),
    )


def python_check() -> Check:
    """The Python that runs this."""
    return Check(
        name="Python",
        ok=sys.version_info >= (3, 11),
        needed=True,
        found=platform.python_version(),
        purpose="rocelab itself",
        remedy="Python 3.11 or later (Debian 12 and Ubuntu 24.04 have it)",
    )


def size_checks() -> list[Check]:
    """The machine's CPUs and memory; for information."""
    page = os.sysconf("SC_PAGE_SIZE")
    total, free = (os.sysconf(name) * page / 2**30 for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
    return [
        Check(
            "memory", True, False, f"{total:.1f} GiB, {free:.1f} free", "14 MB a switch or more", ""
        ),
        Check("CPUs", True, False, str(len(os.sched_getaffinity(0))), "2 carry a zone-small", ""),
    ]


def compile_bpf(program: str) -> tuple[bool, str]:
    """Whether clang makes a BPF object of a C program, and clang's version or its first error."""
    clang = shutil.which("clang")
    if clang is None:
        return False, "clang is missing"
    # The BPF target does not search the folder where Debian keeps asm/types.h.
    headers = f"-I/usr/include/{platform.machine()}-linux-gnu"
    try:
        done = subprocess.run(
            [clang, "-target", "bpf", "-O2", headers, "-x", "c", "-c", "-", "-o", "-"],
            input=program.encode(),
            capture_output=True,
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"clang did not end within {PROGRAM_TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return True, f"clang {program_version((clang, '--version'))}"
    said = done.stderr.decode(errors="replace").splitlines()
    errors = [line for line in said if "error" in line]
    return False, errors[0] if errors else f"clang ended with {done.returncode}"


@cache
def why_not(*, own_frr: bool) -> str | None:
    """The reasons why labs cannot run here, and the remedies; None if they can. `own_frr`: with
    this machine's FRR."""
    status = Path("/proc/self/status").read_text()
    checks = capability_checks(effective_capabilities(status))
    checks += place_checks()
    if all(check.ok for check in checks if check.needed):
        checks += kernel_checks(probes.probe_kernel())
    if own_frr:
        checks.append(frr_check())
    return explained(checks)


def explained(checks: list[Check]) -> str | None:
    """The failed checks without which no lab runs, as a sentence; None if there are none."""
    missing = [check for check in checks if check.needed and not check.ok]
    if not missing:
        return None
    remedies = dict.fromkeys(check.remedy for check in missing)
    named = ", ".join(f"{check.name} ({check.found})" for check in missing)
    return f"this machine cannot run labs: {named}; {'; '.join(remedies)}"
