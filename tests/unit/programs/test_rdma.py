"""Soft-RoCE is looked for, and refused with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocelab.base.errors import MachineError
from rocelab.programs.rdma import has_soft_roce, refuse_rdma
from tests.unit.conftest import CommandLine


def test_a_module_is_found_where_it_is_loaded_or_installed(tmp_path: Path) -> None:
    loaded, modules = tmp_path / "rdma_rxe", tmp_path / "modules"
    assert not has_soft_roce(loaded, modules)
    folder = modules / os.uname().release / "kernel/drivers/infiniband/sw/rxe"
    folder.mkdir(parents=True)
    assert not has_soft_roce(loaded, modules)
    (folder / "rdma_rxe.ko.xz").touch()
    assert has_soft_roce(loaded, modules)
    (folder / "rdma_rxe.ko.xz").unlink()
    loaded.mkdir()
    assert has_soft_roce(loaded, modules)


@pytest.mark.parametrize(
    ("has_module", "reason"), [(False, "has no Soft-RoCE"), (True, "UDP port 4791")]
)
def test_a_refusal_says_why_and_what_to_do(has_module: bool, reason: str) -> None:
    error = refuse_rdma(has_module=has_module)
    assert isinstance(error, MachineError)
    assert reason in error.message
    assert "NCCL_IB_DISABLE=1" in (error.hint or "")


def test_the_command_exits_with_3_before_it_looks_for_a_lab(rocelab: CommandLine) -> None:
    done = rocelab("run", "no-such-lab", "--rdma", "--", "ib_write_bw")
    assert done.code == 3
    assert "Soft-RoCE" in " ".join(done.err.split())
