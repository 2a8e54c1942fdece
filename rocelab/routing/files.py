"""The files of one switch's routing daemons, whatever their stack."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DaemonFiles:
    """The files of one switch: root's, and below them those that daemons write."""

    folder: Path

    @property
    def daemon_folder(self) -> Path:
        """Owned by the daemons' user: logs, pid files and sockets."""
        return self.folder / "daemons"

    @property
    def etc(self) -> Path:
        """Mounted for FRR as /etc/frr, so that daemons and vtysh do not read the machine's."""
        return self.folder / "etc"

    @property
    def crashes(self) -> Path:
        return self.daemon_folder / "crash"

    @property
    def state(self) -> Path:
        return self.daemon_folder / "state"

    @property
    def programs(self) -> Path:
        """Owned by root: the stack's command line, which talks to this switch's daemons."""
        return self.folder / "bin"

    @property
    def library(self) -> Path:
        """Root's: what FRR's bgpd preloads (`rocelab.routing.frr.memory`)."""
        return self.programs / "ringbuf.so"

    def configuration(self, daemon: str) -> Path:
        # mgmtd takes no path: it reads /etc/frr.
        return (self.etc if daemon == "mgmtd" else self.folder) / f"{daemon}.conf"

    def whole(self, daemon: str) -> Path:
        """Root's: the configuration that a daemon ran when a lab of the user's own was whole."""
        return self.folder / f"{daemon}.whole"

    def log(self, daemon: str) -> Path:
        return self.daemon_folder / f"{daemon}.log"

    def pid(self, daemon: str) -> Path:
        return self.daemon_folder / f"{daemon}.pid"

    def control(self, daemon: str) -> Path:
        """The socket on which a daemon answers questions."""
        return self.daemon_folder / f"{daemon}.vty"

    def open_control(self, daemon: str) -> int:
        """A descriptor of what is at the place of a daemon's socket. Raises OSError."""
        return os.open(self.control(daemon), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
