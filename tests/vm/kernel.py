"""A Debian kernel for the virtual machine: downloaded by apt, unpacked, never installed.

`fetch` returns a package's kernel and an initramfs with busybox, the modules that a lab and the
machine's file systems need, and the init next to this file.
"""

from __future__ import annotations

import lzma
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

INIT = Path(__file__).with_name("init.sh")

MODULES = (
    *("drivers/net/veth", "drivers/virtio", "fs/9p", "fs/fscache", "fs/netfs", "fs/overlayfs"),
    *("lib", "net/802", "net/9p", "net/core", "net/ipv4", "net/ipv6", "net/llc", "net/sched"),
)
"""Modules below kernel/ of a package. All of them would be 400 MB."""

_FOLDER, _EXECUTABLE = 0o040755, 0o100755


class MissingError(Exception):
    """A requirement is missing on this machine; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel and initramfs that a virtual machine boots."""

    release: str
    image: Path
    initramfs: Path


def fetch(package: str, folder: Path) -> Kernel:
    """Download a kernel's package into `folder` and make its initramfs there.

    A package that only depends on a kernel (linux-image-amd64) means that kernel. Raises
    MissingError.
    """
    busybox = shutil.which("busybox")
    if busybox is None:
        raise MissingError("busybox is missing: apt-get install busybox-static")
    image, root = folder / "vmlinuz", folder / "initramfs"
    release = unpack(download(package, folder), image, root)
    for name in ("bin", "sbin", "dev", "proc", "sys", "host", "new", "layer"):
        (root / name).mkdir()
    shutil.copy(busybox, root / "bin" / "busybox")
    shutil.copy(INIT, root / "init")
    (root / "init").chmod(0o755)
    _run([busybox, "depmod", "-b", str(root), release])
    archive = folder / "initramfs.cpio"
    archive.write_bytes(cpio(root))
    return Kernel(release, image, archive)


def download(package: str, folder: Path) -> Path:
    """The package's file, in `folder`. Raises MissingError."""
    depends = _run(["apt-cache", "depends", "--no-recommends", "--no-suggests", package])
    for line in depends.splitlines():
        relation, _, name = line.strip().partition(": ")
        if relation == "Depends" and name.startswith("linux-image-"):
            package = name
    _run(["apt-get", "-q", "download", package], folder)
    return next(folder.glob("*.deb"))


def unpack(package: Path, image: Path, root: Path) -> str:
    """Extract the kernel from a package, and its modules below `root`; return the kernel's
    release."""
    release = None
    with (
        subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE
        ) as pipe,
        tarfile.open(fileobj=pipe.stdout, mode="r|") as archive,
    ):
        for member in archive:
            path = PurePosixPath(member.name)
            taken = archive.extractfile(member) if member.isfile() else None
            if taken is None:
                continue
            if path.match("boot/vmlinuz-*"):
                image.write_bytes(taken.read())
                release = path.name.removeprefix("vmlinuz-")
            elif is_wanted(path):
                data = taken.read()
                target = root / path
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.suffix == ".xz":
                    target, data = target.with_suffix(""), lzma.decompress(data)
                target.write_bytes(data)
    if release is None:
        raise MissingError(f"{package.name} holds no kernel: name another with --package")
    return release


def is_wanted(path: PurePosixPath) -> bool:
    """Whether a file of a kernel's package is one of `MODULES`."""
    _, below, inside = str(path).partition("/kernel/")
    return bool(below) and any(
        inside.startswith((f"{module}/", f"{module}.")) for module in MODULES
    )


def cpio(root: Path) -> bytes:
    """A folder as an archive that the kernel unpacks.

    Source: Documentation/driver-api/early-userspace/buffer-format.rst, format `newc`.
    """
    parts: list[bytes] = []

    def add(name: str, mode: int, data: bytes = b"") -> None:
        path = name.encode() + b"\0"
        numbers = (len(parts) + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        header = b"070701" + b"".join(b"%08X" % number for number in numbers) + path
        parts.append(header + bytes(-len(header) % 4) + data + bytes(-len(data) % 4))

    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_dir():
            add(name, _FOLDER)
        else:
            add(name, _EXECUTABLE, path.read_bytes())
    add("TRAILER!!!", 0)
    return b"".join(parts)


def _run(command: list[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MissingError(f"{command[0]} is missing: this runs on Debian and Ubuntu") from None
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise MissingError(
            f"{' '.join(command)} failed: {said}\nif it does not know the package: apt-get update"
        )
    return done.stdout
