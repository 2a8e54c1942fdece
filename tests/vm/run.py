"""Runs a command as root on another kernel: this machine's files, booted in QEMU.

    python -m tests.vm.run [--package linux-image-6.12-amd64] [COMMAND ...]

It prints the command's output and exits with its code. Nothing on this machine is written: its root
is shared read-only, and the command writes to the virtual machine's memory. There is no KVM, no
network and no listening socket. Exit code 3: this machine cannot do it; the message says what to
install.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.vm.kernel import Kernel, MissingError, fetch

CHECKOUT = Path(__file__).parents[2]
DEFAULT = ("bash", "tests/vm/suite.sh")
QEMU = "qemu-system-x86_64"
MEMORY = "3G"

ICOUNT = "shift=1"
"""The machine's clock counts instructions, 2 ns each, and runs in real time while idle: a slow but
steady CPU, so that packets keep their pace whatever the emulation costs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vm.run", description="see README.md")
    parser.add_argument("--package", default="linux-image-amd64", help="a kernel that apt knows")
    parser.add_argument("--timeout", type=float, default=600, help="seconds until it is ended")
    parser.add_argument("--append", default="", help="words for the kernel's command line")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="run in the checkout, as root")
    arguments = parser.parse_args()
    # Ended from outside, it still ends the virtual machine and removes its folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    command = [word for word in arguments.command if word != "--"] or list(DEFAULT)
    try:
        if shutil.which(QEMU) is None:
            raise MissingError(
                f"{QEMU} is missing: "
                "apt-get install --no-install-recommends qemu-system-x86 busybox-static"
            )
        with tempfile.TemporaryDirectory(prefix="rocelab-vm-") as name:
            folder = Path(name)
            kernel = fetch(arguments.package, folder)
            say(f"Linux {kernel.release}, emulated by QEMU: {shlex.join(command)}")
            return boot(kernel, folder / "shared", command, arguments.append, arguments.timeout)
    except MissingError as error:
        say(f"error: {error}")
        return 3


def boot(kernel: Kernel, shared: Path, command: list[str], append: str, timeout_s: float) -> int:
    """Run `command` on `kernel`, booted with the words `append`; return its exit code, or 1 if the
    machine ended without one."""
    shared.mkdir()
    # Through a pipe, since a console would be sent progress bars.
    (shared / "command.sh").write_text(
        "set -o pipefail\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
        f"cd {shlex.quote(str(CHECKOUT))} && {shlex.join(command)} 2>&1 | cat\n"
    )
    try:
        subprocess.run(machine(kernel, shared, append), timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        say(f"error: not done within {timeout_s:.0f} s (--timeout)")
        return 1
    code = shared / "code"
    if not code.exists():
        say("error: the virtual machine ended before its command did")
        return 1
    return int(code.read_text())


def machine(kernel: Kernel, shared: Path, append: str) -> list[str]:
    """The command line of the virtual machine, whose console is standard output."""
    root = "local,mount_tag=root,path=/,readonly=on,security_model=none,multidevs=remap"
    results = f"local,mount_tag=results,path={shared},security_model=none"
    return [
        *(QEMU, "-accel", "tcg", "-icount", ICOUNT, "-cpu", "max", "-smp", "1", "-m", MEMORY),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-nic", "none", "-display", "none"),
        *("-monitor", "none", "-serial", "stdio", "-virtfs", root, "-virtfs", results),
        *("-kernel", str(kernel.image), "-initrd", str(kernel.initramfs)),
        *("-append", f"console=ttyS0 quiet panic=-1 mitigations=off {append}"),
    ]


def say(text: str) -> None:
    """Print on standard error, so that standard output is only the virtual machine's console."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
