"""A real OpenSSH server in its own namespace, and a user with a key to it.

The server's machine is this one, seen through SSH: its packages come from wheels that point to the
ones installed here, because a test uses no package index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from rocelab.lab.management import SEPARATION_FOLDER, root_is_locked, sshd_path
from rocelab.linux import namespaces
from rocelab.linux.processes import kill_and_wait
from rocelab.remote.install import this_kit
from tests.helpers.waiting import RUN_LIMIT_S

SOURCE = Path(__file__).resolve().parents[2]
ROCELAB = (sys.executable, "-P", "-c", "from rocelab.cli.main import main; main()")
NETNS_FOLDER = Path("/run/rocelab-tests")


@dataclass(slots=True)
class Server:
    """An sshd on 127.0.0.1 of its namespace, and the home of its user."""

    root: Path
    netns: Path
    port: int
    client: tuple[str, ...] = ROCELAB
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def home(self) -> Path:
        """The user's home, on this side."""
        return self.root / "home"

    @property
    def kit(self) -> Path:
        """The folder where rocelab is installed on the other side."""
        return self.root / "data/rocelab"

    @property
    def host(self) -> str:
        return f"root@127.0.0.1:{self.port}"

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh/known_hosts"

    @property
    def key(self) -> Path:
        return self.home / ".ssh/id_ed25519"

    @property
    def host_key(self) -> Path:
        return self.root / "host_key"

    def start(self, *settings: str) -> None:
        """Start it with further lines of sshd_config; return when its log says that it listens."""
        configuration = self.root / "sshd_config"
        configuration.write_text(
            f"ListenAddress 127.0.0.1:{self.port}\n"
            f"HostKey {self.host_key}\n"
            f"PidFile none\n"
            f"AuthorizedKeysFile {self.root}/authorized_keys\n"
            "AuthenticationMethods publickey\n"
            "PermitRootLogin prohibit-password\n"
            # The test's folder is below one that all may write to.
            "StrictModes no\n"
            f"UsePAM {'yes' if root_is_locked() else 'no'}\n"
            "UseDNS no\n"
            "Subsystem sftp internal-sftp\n"
            f"SetEnv XDG_DATA_HOME={self.root}/data PATH={self.root}/bin:{os.environ['PATH']}\n"
            + "".join(f"{setting}\n" for setting in settings)
        )
        SEPARATION_FOLDER.mkdir(mode=0o755, exist_ok=True)
        arguments = [sshd_path(), "-D", "-e", "-f", str(configuration)]
        self.process = namespaces.inside(
            self.netns, lambda: subprocess.Popen(arguments, stderr=subprocess.PIPE)
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if b"Server listening" in line:
                return
        raise AssertionError(f"sshd did not start: {self.process.wait()}")

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def cut(self) -> None:
        """Kill the processes of every connection."""
        assert self.process is not None
        kill_and_wait(_children(self.process.pid))

    def trust(self) -> None:
        """Add the server's key to the user's known hosts."""
        kind, key, *_ = self.host_key.with_suffix(".pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.home), "PYTHONPATH": str(SOURCE), **more}

    @contextmanager
    def begin(
        self,
        *words: str | Path,
        cwd: Path,
        host: str | None = None,
        environment: Mapping[str, str] | None = None,
        terminal: int | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """`rocelab --host SERVER WORDS...` in the server's namespace, as the user; after an error
        in the block it is killed, else its end awaited."""
        command = [*self.client, "--host", host or self.host, *map(str, words)]
        pipe = subprocess.PIPE if terminal is None else terminal
        process = namespaces.inside(
            self.netns,
            lambda: subprocess.Popen(
                command,
                cwd=cwd,
                env=self.environment() if environment is None else environment,
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=pipe,
                stderr=pipe,
            ),
        )
        with process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    def rocelab(
        self,
        *words: str | Path,
        cwd: Path,
        host: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, str]:
        """Exit code, output and errors of a command run on the server."""
        with self.begin(*words, cwd=cwd, host=host, environment=environment) as process:
            out, errors = process.communicate(timeout=RUN_LIMIT_S)
        return process.returncode, out, errors.decode()


def _children(pid: int) -> list[int]:
    """All processes below one, the lowest last; those of one that ends meanwhile are left out."""
    children = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                children += [child, *_children(child)]
    return children


def make_key(path: Path, *options: str) -> str:
    """A key pair; gives the public one."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path), *options]
    subprocess.run(command, check=True)
    return path.with_suffix(".pub").read_text()


@contextmanager
def ssh_server(root: Path, name: str, port: int) -> Iterator[Server]:
    """A server in the namespace of that name, which is gone when the context ends."""
    NETNS_FOLDER.mkdir(exist_ok=True)
    netns = NETNS_FOLDER / name

    def make() -> None:
        os.close(namespaces.create(netns))
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

    namespaces.on_own_thread(make)
    server = Server(root, netns, port)
    try:
        for folder in (server.home / ".ssh", root / "bin", server.kit / "wheels"):
            folder.mkdir(parents=True)
        make_key(server.host_key)
        (root / "authorized_keys").write_text(make_key(server.key))
        server.trust()
        # The Python whose packages the wheels lead to, whatever others the machine has.
        python = root / "bin/python3.15"
        python.write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} "$@"\n')
        python.chmod(0o755)
        _write_wheels(server.kit / "wheels")
        server.start()
        yield server
    finally:
        if server.process is not None:
            server.stop()
        kill_and_wait(namespaces.processes_in([netns.stat().st_ino]))
        namespaces.detach_mount(netns)
        netns.unlink()
        if not any(NETNS_FOLDER.iterdir()):
            NETNS_FOLDER.rmdir()
        shutil.rmtree(root, ignore_errors=True)


def _write_wheels(folder: Path) -> None:
    """A wheel for each requirement that only leads to the one installed here."""
    for requirement in this_kit("live").requirements:
        name = requirement.split(">")[0].split("<")[0].split("=")[0].split("[")[0].strip()
        version = metadata.version(name)
        stem = f"{name.replace('-', '_')}-{version}"
        info = f"{stem}.dist-info"
        link = f"rocelab_tests_{name.replace('-', '_')}.pth"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(link, f"{sysconfig.get_paths()['purelib']}\n")
            wheel.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
            wheel.writestr(
                f"{info}/WHEEL",
                "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            wheel.writestr(
                f"{info}/RECORD",
                f"{link},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
            )
