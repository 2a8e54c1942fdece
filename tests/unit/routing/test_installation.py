"""Finding FRR in made-up folders, with programs that print FRR's output."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from rocelab import record as records
from rocelab.base.errors import InputError, MachineError
from rocelab.lab import doctor
from rocelab.lab.engine import ContainerEngine
from rocelab.lab.lab import Lab
from rocelab.lab.providers import provider_of
from rocelab.lab.providers.containers import Containers, installation_in, write_containers
from rocelab.record import LabFiles
from rocelab.routing import daemons
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr import installation
from rocelab.routing.frr.installation import (
    TESTED_RELEASES,
    FrrInstallation,
    find_installation,
    release_of,
    run_folder_in,
    untested,
    version_in,
)
from rocelab.routing.stack import read_installation, write_installation

FRR_8 = """\
bgpd version 8.4.4
Copyright 1996-2005 Kunihiro Ishiguro, et al.
configured with:
\t'--prefix=/usr' '--localstatedir=/var' '--localstatedir=/var/run/frr' '--sbindir=/usr/lib/frr'
"""
FRR_10 = """\
bgpd version 10.3
Copyright 1996-2005 Kunihiro Ishiguro, et al.
configured with:
\t'--prefix=/usr' '--localstatedir=/var' '--runstatedir=/run' '--sbindir=/usr/lib/frr'
"""
FRR = FrrInstallation("10.3", "/usr/lib/frr", 104, 107, True, "/run/frr", "/usr/bin/vtysh")


def make_daemons(folder: Path, *names: str, says: str = FRR_10) -> None:
    """Make programs that print the version output of FRR's."""
    folder.mkdir(parents=True)
    for name in names:
        program = folder / name
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{says}END\n")
        program.chmod(0o755)


@pytest.fixture(autouse=True)
def owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has FRR's user, whichever this is."""
    monkeypatch.setattr(installation, "frr_owner", lambda: (104, 107))


@pytest.mark.parametrize("place", ["usr/lib/frr", "lib/frr", "libexec/frr", "sbin", "."])
def test_daemons_are_found_below_a_prefix_wherever_packages_put_them(
    tmp_path: Path, place: str
) -> None:
    make_daemons(tmp_path / "prefix" / place, "bgpd", "zebra", "mgmtd")
    installation = find_installation(tmp_path / "prefix")
    assert Path(installation.folder) == tmp_path / "prefix" / place
    assert (installation.version, installation.has_mgmtd, installation.run_folder) == (
        "10.3",
        True,
        "/run/frr",
    )
    assert (installation.user, installation.group, installation.root) == (104, 107, "/")


def test_a_release_without_mgmtd_starts_none(tmp_path: Path) -> None:
    make_daemons(tmp_path / "frr", "bgpd", "zebra", says=FRR_8)
    installation = find_installation(tmp_path / "frr")
    assert (installation.version, installation.run_folder) == ("8.4.4", "/var/run/frr")
    assert installation.daemons(("zebra", "bgpd")) == ("zebra", "bgpd")


def test_mgmtd_starts_before_zebra_which_waits_for_it() -> None:
    assert FRR.daemons(("zebra", "bfdd", "bgpd")) == ("mgmtd", "zebra", "bfdd", "bgpd")


def test_libraries_of_a_prefix_are_found_with_its_programs(tmp_path: Path) -> None:
    make_daemons(tmp_path / "usr/lib/frr", "bgpd")
    for library in ("usr/lib/x86_64/frr/libfrr.so.0", "usr/lib/x86_64/libyang.so.3"):
        (tmp_path / library).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / library).touch()
    folders = (f"{tmp_path}/usr/lib/x86_64", f"{tmp_path}/usr/lib/x86_64/frr")
    installation = find_installation(tmp_path)
    assert installation.libraries == folders
    assert installation.environment == {"LD_LIBRARY_PATH": ":".join(folders)}


def test_a_folder_without_frr_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"no FRR in {tmp_path}"):
        find_installation(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        find_installation(tmp_path / "missing")


def test_another_systems_tree_without_frr_or_its_user_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (tmp_path / "etc/group").write_text("root:x:0:\n")
    with pytest.raises(InputError, match="has no FRR") as refused:
        find_installation(tmp_path)
    assert "apt-get install frr" in str(refused.value)
    make_daemons(tmp_path / "usr/lib/frr", "bgpd")
    with pytest.raises(InputError, match="no user and group frr"):
        find_installation(tmp_path)


def test_daemons_that_do_not_run_here_say_why(tmp_path: Path) -> None:
    program = tmp_path / "bgpd"
    program.write_text("#!/bin/sh\necho 'version GLIBC_2.38 not found' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(MachineError, match=r"does not run: .*GLIBC_2\.38") as refused:
        find_installation(tmp_path)
    assert "mmdebstrap" in str(refused.value)


@pytest.mark.parametrize("kind", ["docker", "containerlab"])
def test_containers_run_the_frr_of_their_image(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="their image") as refused:
        provider_of(kind, None, tmp_path)
    assert "--image" in str(refused.value)


def test_what_a_shell_in_an_image_says_of_its_frr() -> None:
    said = f"100\n101\n/usr/lib/frr\nmgmtd\n/usr/bin/vtysh\n{FRR_10}"
    installation = installation_in(said)
    assert installation == FrrInstallation(
        "10.3", "/usr/lib/frr", 100, 101, True, "/run/frr", "/usr/bin/vtysh"
    )
    assert installation_in("") is None
    assert installation_in("100\n101\n/usr/libexec/frr\n-\n-\n") is None


@pytest.mark.parametrize("image", [FRR, replace(FRR, version="8.4.4", has_mgmtd=False)])
def test_a_container_starts_mgmtd_first_where_its_image_has_it(
    image: FrrInstallation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(records, "RUN_ROOT", tmp_path)
    lab = Lab.planned("tiny", provider_of("docker", "some-image")).unstarted()
    files = LabFiles("tiny")
    files.netns_of("rtsw1").parent.mkdir(parents=True)
    files.netns_of("rtsw1").touch()
    write_containers(files, Containers("docker", "rocelab-tiny", "0123", "some-image"))
    write_installation(files.root, image)
    started: list[str] = []

    def call(
        engine: ContainerEngine, arguments: Sequence[str], **_: object
    ) -> CompletedProcess[str]:
        command = list(arguments)
        place = command.index("rocelab-tiny-rtsw1")
        started.append(command[place + 1])
        return CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(ContainerEngine, "call", call)
    lab.node("rtsw1").start_daemons(lab.daemons_of("rtsw1"))
    assert started == [
        f"/usr/lib/frr/{name}" for name in ("mgmtd", "zebra", "bgpd")[not image.has_mgmtd :]
    ]


@pytest.mark.parametrize(
    ("said", "folder"),
    [
        (FRR_8, "/var/run/frr"),
        (FRR_10, "/run/frr"),
        ("'--localstatedir=/opt/frr/var'", "/opt/frr/var/run/frr"),
        ("'--runstatedir=/opt/run/frr'", "/opt/run/frr"),
        ("", "/var/run/frr"),
    ],
)
def test_the_folder_of_sockets_is_the_one_that_is_compiled_in(said: str, folder: str) -> None:
    assert run_folder_in(said) == folder


def test_a_release_is_two_numbers_of_a_version() -> None:
    assert [
        release_of(version) for version in ("8.4.4", "10.3", "10.3.1", "10.6-dev", "unknown")
    ] == [
        "8.4",
        "10.3",
        "10.3",
        "10.6",
        "unknown",
    ]
    assert version_in("something else") == "unknown"
    assert version_in("FRRouting 10.3-dev (leaf1) on Linux(6.18).\n") == "10.3-dev"


def test_an_untested_release_is_named_and_a_tested_one_is_not() -> None:
    assert [untested(f"{release}.1") for release in TESTED_RELEASES] == [None] * len(
        TESTED_RELEASES
    )
    note = untested("11.0")
    assert note is not None
    assert "FRR 11.0 is untested" in note
    assert all(release in note for release in TESTED_RELEASES)


def test_doctor_names_an_untested_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = FrrInstallation("11.0", str(tmp_path), 1, 2, True, "/run/frr", "", "/root", ("/lib",))
    monkeypatch.setattr(doctor, "find_installation", lambda: kept)
    monkeypatch.setattr(doctor, "program_version", lambda command: "bgpd version 11.0")
    check = doctor.frr_check()
    assert check.ok
    assert "; untested: rocelab is tested with 8.4 and 10.3" in check.found


def test_a_lab_remembers_its_frr(tmp_path: Path) -> None:
    kept = FrrInstallation("10.3", "/x", 1, 2, True, "/run/frr", "", "/root", ("/lib", "/lib2"))
    write_installation(tmp_path, kept)
    assert read_installation(tmp_path) == kept


FOLDER = Path("/run/rocelab/x/nodes/rtsw1")
SHARED = [
    *("-z", f"{FOLDER}/daemons/zserv.api"),
    *("--vty_socket", f"{FOLDER}/daemons", "-A", "127.0.0.1", "-P", "0"),
]


@pytest.mark.parametrize("daemon", ["zebra", "bfdd", "bgpd"])
def test_a_daemon_is_started_with_its_files_by_arguments_that_every_release_has(
    daemon: str,
) -> None:
    assert FRR.command(daemon, DaemonFiles(FOLDER)) == [
        *(f"/usr/lib/frr/{daemon}", "-d", "-f", f"{FOLDER}/{daemon}.conf"),
        *("-i", f"{FOLDER}/daemons/{daemon}.pid", *SHARED),
        *(["--v6-rr-semantics"] if daemon == "zebra" else []),
    ]


def test_mgmtd_reads_what_is_in_etc_frr_and_takes_no_path() -> None:
    assert FRR.command("mgmtd", DaemonFiles(FOLDER)) == [
        *("/usr/lib/frr/mgmtd", "-d", "-i", f"{FOLDER}/daemons/mgmtd.pid", *SHARED),
    ]
    assert DaemonFiles(FOLDER).configuration("mgmtd") == FOLDER / "etc/mgmtd.conf"


def test_a_daemon_that_does_not_start_in_time_is_shown_with_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    files = DaemonFiles(tmp_path / "rtsw1")
    files.daemon_folder.mkdir(parents=True)
    logged = [f"2026/11/22 16:00:0{second} ZEBRA: can't send message" for second in range(9)]
    files.log("zebra").write_text("\n".join(logged) + "\n")
    error = daemons.not_started("zebra", files, "complaint\n", timed_out=True)
    said = str(error)
    assert "zebra of rtsw1 did not start within 60 s; it said:" in said
    assert "complaint" in said
    assert logged[-1] in said
    assert logged[0] not in said
    assert os.linesep.join(logged[-2:]) not in said  # a line each, indented
