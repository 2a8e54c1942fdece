"""The doctor on this machine: its report must match the machine's behaviour."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rocelab.lab import doctor
from rocelab.lab.checks import Check
from rocelab.lab.doctor import BPF_PROGRAM, MachineDiagnosis
from rocelab.linux import probes

pytestmark = pytest.mark.side_by_side


WITHOUT_PRIVILEGES = """
from rocelab.lab.doctor import diagnose
diagnosis = diagnose()
for check in diagnosis.checks:
    print(check.name, check.ok, check.found, sep="|")
print("can run", diagnosis.can_run, "", sep="|")
"""


@pytest.fixture(scope="module")
def diagnosis() -> MachineDiagnosis:
    return doctor.diagnose()


def named(diagnosis: MachineDiagnosis, name: str) -> Check:
    return next(check for check in diagnosis.checks if check.name == name)


def has_qdisc(kind: str) -> bool:
    """Whether iproute2 can add such a qdisc, in a namespace that ends with its process."""
    parameters = {
        "tbf": "rate 1mbit burst 10k limit 100k",
        "red": "limit 400k min 30k max 90k avpkt 1000 burst 55",
        "netem": "delay 1ms",
        "clsact": "",
    }[kind]
    where = "clsact" if kind == "clsact" else f"root {kind}"
    script = f"ip link add v type veth && tc qdisc add dev v {where} {parameters}"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], capture_output=True, check=False
    )
    return done.returncode == 0


def test_a_machine_that_runs_the_suite_can_run_a_lab(diagnosis: MachineDiagnosis) -> None:
    assert diagnosis.can_run, [one for one in diagnosis.checks if one.needed and not one.ok]


@pytest.mark.parametrize("kind", ["tbf", "red", "netem", "clsact"])
def test_a_qdisc_is_said_to_be_there_when_iproute2_can_add_it(
    diagnosis: MachineDiagnosis, kind: str
) -> None:
    assert named(diagnosis, kind).ok == has_qdisc(kind)


def test_the_hash_seed_is_said_to_be_there_when_the_kernel_has_its_setting(
    diagnosis: MachineDiagnosis,
) -> None:
    setting = Path("/proc/sys/net/ipv4/fib_multipath_hash_seed")
    assert named(diagnosis, "multipath hash seed").ok == setting.exists()


def test_trying_the_kernel_leaves_this_machines_own_settings_alone() -> None:
    settings = [
        Path("/proc/sys/net/ipv4/fib_multipath_hash_policy"),
        Path("/proc/sys/net/ipv4/fib_multipath_hash_seed"),
    ]
    state = [*settings, Path("/proc/self/net/dev")]

    def interfaces_and_settings() -> list[list[str]]:
        return [
            [line.partition(":")[0] for line in path.read_text().splitlines()]
            for path in state
            if path.exists()
        ]

    before = interfaces_and_settings()
    own_namespace = Path("/proc/self/ns/net")
    namespace = own_namespace.readlink()
    own_mounts = Path("/proc/thread-self/ns/mnt").readlink()
    assert all(outcome.found != "needs root" for outcome in probes.probe_kernel().values())
    assert own_namespace.readlink() == namespace
    assert Path("/proc/thread-self/ns/mnt").readlink() == own_mounts
    assert not Path("/run/netns").is_file()
    assert interfaces_and_settings() == before


def test_the_frr_version_is_the_one_bgpd_gives(diagnosis: MachineDiagnosis) -> None:
    printed = subprocess.run(
        ["/usr/lib/frr/bgpd", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert named(diagnosis, "FRR zebra, bgpd").found.split(",")[0] in printed


def test_the_bpf_compiler_compiles(diagnosis: MachineDiagnosis) -> None:
    assert named(diagnosis, "BPF compiler").ok


def test_a_bpf_program_that_does_not_compile_gives_the_compilers_first_error() -> None:
    ok, messages = doctor.compile_bpf(BPF_PROGRAM.replace("skb->len", "skb->nothing"))
    assert not ok
    assert "no member named 'nothing'" in messages


def test_without_privileges_each_kernel_check_says_so_and_no_lab_can_run() -> None:
    # But for reading: the checkout may be in a home that only its user may enter.
    without = ["setpriv", "--bounding-set=-all,+dac_read_search", "--inh-caps=-all"]
    done = subprocess.run(
        [*without, sys.executable, "-c", WITHOUT_PRIVILEGES],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(doctor.__file__).parent.parent,
    )
    rows = {name: rest for name, *rest in (line.split("|") for line in done.stdout.splitlines())}
    assert rows["can run"][0] == "False"
    assert rows["CAP_NET_ADMIN"] == ["False", "missing"]
    assert rows["network namespaces"] == ["False", "needs root"]
    assert rows["tbf"] == ["False", "not tried: needs root"]
    assert rows["FRR zebra, bgpd"][0] == "True"
