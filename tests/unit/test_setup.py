"""setup.sh: services of packages do not start during the installation, and Docker's client."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "setup.sh"

APT = """#!/bin/sh
# What a package's own script does before it starts a service.
[ -x {policy} ] && {policy}
said=$?
while [ $# -gt 1 ]; do shift; done
echo "policy said $said, installing $1" >{log}
"""


def run_function(folder: Path, call: str, **programs: str) -> None:
    """Call a function of setup.sh, as root, with programs of the machine replaced."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name, text in {"id": "#!/bin/sh\necho 0\n", **programs}.items():
        program = bin_folder / name.replace("_", "-")
        program.write_text(text)
        program.chmod(0o755)
    functions, _, _ = SETUP.read_text().partition("\nmapfile ")
    script = folder / "setup.sh"
    script.write_text(
        functions.replace("/usr/sbin/policy-rc.d", str(folder / "policy-rc.d"))
        .replace("/run/systemd/system", str(folder / "systemd"))
        .replace("/etc/init.d", str(folder / "init.d"))
        + f"\nPATH=$1:$PATH\n{call}\n"
    )
    done = subprocess.run(["bash", script, bin_folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_services_are_held_where_there_is_neither_systemd_nor_a_policy(tmp_path: Path) -> None:
    policy, log = tmp_path / "policy-rc.d", tmp_path / "log"

    run_function(
        tmp_path,
        "services=(frr.service)\ninstall_with_services_held frr",
        apt_get=APT.format(policy=policy, log=log),
    )

    assert log.read_text() == "policy said 101, installing frr\n"
    assert not policy.exists()


@pytest.mark.parametrize(
    ("release_has_it", "installed"), [(True, "docker.io docker-cli"), (False, "docker.io")]
)
def test_dockers_client_is_installed_where_it_is_a_package_of_its_own(
    tmp_path: Path, release_has_it: bool, installed: str
) -> None:
    log = tmp_path / "log"

    run_function(
        tmp_path,
        "install_packages docker.io",
        apt_get=f'#!/bin/sh\necho "$*" >>{log}\n',
        apt_cache=f"#!/bin/sh\nexit {0 if release_has_it else 100}\n",
    )

    (line,) = (line for line in log.read_text().splitlines() if " install " in line)
    assert line.endswith(f"--no-install-recommends {installed}")
