"""A system as a virtual machine with its own kernel and systemd, from a disk, in QEMU without KVM.

The files of a machine become a disk, which is booted once to run one command as root. The console
goes to a log; the command's exit code and results are read from the disk.

Emulated, a CPU is 10 to 30 times slower. The virtual machine's clock counts instructions and skips
idle time: inside, timers are on time; outside, everything takes longer.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.machines.system import Machine, MissingError

QEMU = "qemu-system-x86_64"
MEMORY = "3G"
DISK = "10G"
ICOUNT = "shift=0,sleep=off"
"""1 ns per instruction, a slow but steady CPU; idle time is skipped."""
CPU = "Nehalem"
"""x86-64-v2, numpy's minimum: with the AVX2 of QEMU 7.2 its sort is wrong."""

CODE = Path("/root/code")

# Through a pipe, since a console would be sent progress bars.
UNIT = """\
[Unit]
Description=The command that this virtual machine was booted for
After=multi-user.target

[Service]
Type=oneshot
WorkingDirectory=/root/rocelab
Environment=HOME=/root
ExecStart=/bin/bash -c '({command}) 2>&1 | cat >/dev/console; echo $${{PIPESTATUS[0]}} >{code}'
ExecStartPost=/bin/systemctl --no-block start poweroff.target
TimeoutStartSec=infinity

[Install]
WantedBy=multi-user.target
"""


def check_tools() -> None:
    """Raises MissingError if this machine cannot boot a virtual one."""
    missing = [tool for tool in (QEMU, "mke2fs", "debugfs") if shutil.which(tool) is None]
    if missing:
        raise MissingError(
            f"{', '.join(missing)}: missing; "
            "apt-get install --no-install-recommends qemu-system-x86 e2fsprogs"
        )


def prepare(machine: Machine) -> None:
    """Install the additional packages of a virtual machine: systemd, and the stock kernel."""
    machine.run(
        "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install"
        " --no-install-recommends systemd-sysv linux-image-amd64 initramfs-tools udev"
    )


def make_disk(machine: Machine, command: str, folder: Path) -> None:
    """Put the machine's files, with a service that runs `command`, on a disk in `folder`."""
    unit = machine.root / "etc/systemd/system/machine-test.service"
    unit.write_text(UNIT.format(command=command, code=CODE))
    wanted = machine.root / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    (wanted / unit.name).symlink_to(f"../{unit.name}")
    # A login on the console would take it from the service.
    (machine.root / "etc/systemd/system/serial-getty@ttyS0.service").symlink_to("/dev/null")
    (machine.root / "etc/fstab").write_text("/dev/vda / ext4 rw 0 1\n")
    for name in ("vmlinuz", "initrd.img"):
        (source,) = machine.root.glob(f"boot/{name}-*")
        shutil.copyfile(source, folder / name)
    disk = folder / "disk"
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-d", str(machine.root), str(disk), DISK], check=True
    )


def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Boot the disk; the process ends when the virtual machine powers off."""
    command = [
        *(QEMU, "-accel", "tcg", "-icount", ICOUNT, "-cpu", CPU, "-smp", "1", "-m", MEMORY),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-nic", "none", "-display", "none"),
        *("-monitor", "none", "-serial", "stdio"),
        *("-drive", f"file={folder / 'disk'},format=raw,if=virtio,cache=unsafe"),
        *("-kernel", str(folder / "vmlinuz"), "-initrd", str(folder / "initrd.img")),
        *("-append", "root=/dev/vda rw console=ttyS0 quiet panic=-1 mitigations=off"),
    ]
    with log.open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def exit_code(folder: Path) -> int | None:
    """The command's exit code, None if the machine ended before the command."""
    said = _debugfs(folder, f"cat {CODE}").strip()
    return int(said) if said.isdigit() else None


def take_results(folder: Path, target: Path) -> None:
    """Copy the results folder of the checkout on the disk to an existing folder."""
    _debugfs(folder, f"rdump /root/rocelab/results {target}")


def _debugfs(folder: Path, request: str) -> str:
    done = subprocess.run(
        ["debugfs", "-R", request, str(folder / "disk")],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout
