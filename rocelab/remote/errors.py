"""The errors between this machine and another one, each with its exit code."""

from __future__ import annotations

from rocelab.base.errors import MachineError, RocelabError


class UnreachableError(MachineError):
    """The other machine could not be reached, or denied access."""


class HostKeyError(UnreachableError):
    """The host key of the machine that answered is not the known one."""


class UnfitError(MachineError):
    """The other machine lacks something that the kit needs there."""


class DiskFullError(UnfitError):
    """The other machine's disk is full."""


class ConnectionLostError(RocelabError):
    """The connection broke; the run there continues.

    The exit code is EX_TEMPFAIL of sysexits.h: neither the run's success nor its failure.
    """

    exit_code = 75
