"""Why a server of a lab has no Soft-RoCE device (`rdma_rxe`) for programs that use RDMA verbs.

A check and a refusal. Seen on Debian's Linux 6.12: `rdma link add` makes a device on a NIC in a
server's namespace, but the module binds RoCEv2's UDP port in the first namespace alone
(drivers/infiniband/sw/rxe/rxe_net.c, `rxe_net_init`), and verbs find no device in the server. Where
the module is absent nothing beyond the refusal was tried.
"""

from __future__ import annotations

import os
from pathlib import Path

from rocelab.base.errors import MachineError

_LOADED = Path("/sys/module/rdma_rxe")
_MODULES = Path("/lib/modules")
_PLACE = "kernel/drivers/infiniband/sw/rxe"
_HINT = (
    "run the program over the NICs' TCP: NCCL_IB_DISABLE=1 for NCCL, UCX_TLS=tcp for UCX, --mca "
    "btl tcp,self for OpenMPI; RoCE itself is what `rocelab traffic` sends"
)


def has_soft_roce(loaded: Path = _LOADED, modules: Path = _MODULES) -> bool:
    """Whether this kernel has `rdma_rxe`, loaded or not."""
    folder = modules / os.uname().release / _PLACE
    return loaded.exists() or any(folder.glob("rdma_rxe.ko*"))


def refuse_rdma(*, has_module: bool) -> MachineError:
    """The error for who asks for a verbs device on each NIC."""
    release = os.uname().release
    if not has_module:
        return MachineError(
            f"this kernel ({release}) has no Soft-RoCE: its module rdma_rxe is neither loaded nor "
            "installed, so no NIC of a lab can have a device for RDMA verbs",
            _HINT,
        )
    return MachineError(
        f"this kernel ({release}) has Soft-RoCE (rdma_rxe), which receives RoCEv2's UDP port 4791 "
        "in the machine's own network namespace alone: on Linux 6.12 a device on a NIC of a lab's "
        "server could be made, and verbs found none there",
        _HINT,
    )
