"""A table of nccl-tests that is simulated: its sizes, its figures and what it refuses."""

from __future__ import annotations

import json

import pytest

from rocelab.base.errors import InputError
from rocelab.sim.busbw import sizes_of
from tests.unit.sim.test_simulate import run

JOB = ["--pattern", "allreduce", "--ranks", "8", "--host-model", "dgx-h100"]


def test_sizes_grow_by_a_factor_up_to_the_last() -> None:
    assert sizes_of("8B:64B") == (8, 16, 32, 64)
    assert sizes_of("1MB:500MB:10") == (10**6, 10**7, 10**8)
    for text in ("8B", "64B:8B", "8B:64B:1", "8:64", "8B:64B:x"):
        with pytest.raises(InputError, match="no range of sizes") as caught:
            sizes_of(text)
        assert "8B:1GiB" in (caught.value.hint or "")


def test_each_size_is_done_as_the_library_would_and_says_so() -> None:
    code, text, said = run("simulate", "rail-superpod", *JOB, "--sizes", "4B:1GiB:8192", "--json")
    assert code == 0
    table = json.loads(text)
    small, large = table["sizes"]
    assert (small["size_bytes"], large["size_bytes"]) == (4 * 8192, 4 * 8192**2)
    assert "protocol ll" in small["way"]
    assert large["way"] == "nvls, protocol simple"
    for row in table["sizes"]:
        assert row["algbw_gbs"] == pytest.approx(row["size_bytes"] / row["time_ns"])
        assert row["busbw_gbs"] == pytest.approx(row["algbw_gbs"] * 2 * 7 / 8)
    assert "1 size below 32" in said


def test_a_table_is_of_one_collective_alone() -> None:
    both = ["--sizes", "1MB:2MB", "--size", "1MB"]
    code, _, said = run("simulate", "rail-superpod", *JOB, *both)
    assert (code, "--sizes with --size" in said) == (2, True)
    code, _, said = run("simulate", "rail-superpod", "--sizes", "1MB:2MB", "--job", "llama3-16k")
    assert (code, "--sizes with --job" in said) == (2, True)
