"""What can go wrong between this machine and another one, each with the exit code it ends with."""

from __future__ import annotations

from rocelab.errors import MachineError, RocelabError


class UnreachableError(MachineError):
    """The other machine could not be reached, or did not let us in."""


class HostKeyError(UnreachableError):
    """The machine that answered is not known to be the one that was meant."""


class UnfitError(MachineError):
    """The other machine lacks something that the kit needs there."""


class DiskFullError(UnfitError):
    """There is no room on the other machine's disk."""


class ConnectionLostError(RocelabError):
    """The connection broke while a run went on there, which it still does.

    The exit code is EX_TEMPFAIL of sysexits.h: neither the run's success nor its failure.
    """

    exit_code = 75
