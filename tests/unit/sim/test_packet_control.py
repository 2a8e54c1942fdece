"""The packet engine with congestion controls that installed packages add."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocelab.jobs.transport import TransportSpec
from tests.helpers.long import mostly_long
from tests.helpers.plugin import PluginEnvironment
from tests.unit.sim.packet_runs import ACK_PS, FULL_PS, LATENCY_PS

PACKETS = 50
POINTS = {"congestion:paced": "lab_pacing:PacedSpec"}
BESIDE_DCQCN = f"""
import json
from rocelab.jobs.transport import TransportSpec
from rocelab.sim.packets.control import rule_of
from tests.unit.sim.packet_runs import Flow, at, finish_ps, ran
def flow(sends, **keys):
    rule = rule_of(TransportSpec.model_validate(keys).control, 100e9)
    return Flow(sends, {PACKETS} * 4096, ecn=at.ALL_CE, rule=rule)
done = ran([
    flow([0, 2], congestion="paced"),
    flow([10, 12], congestion={{"kind": "paced", "part": 2}}),
    flow([20, 22], dcqcn="sigcomm15"),
])
alone = ran([flow([place, place + 2], dcqcn="sigcomm15") for place in (0, 10, 20)])
print(json.dumps([finish_ps(done), done.cnps.tolist(), finish_ps(alone)]))
"""
JOBS = """
jobs:
  - name: slow
    collective:
      {pattern: pairs, ranks: 2, size: 1MB, transport: {congestion: {kind: paced, part: 8}}}
  - name: quick
    placement: [srv2-1, srv2-2]
    collective: {pattern: pairs, ranks: 2, size: 1MB, placement: [srv2-1, srv2-2]}
"""


@pytest.fixture
def there(tmp_path: Path) -> PluginEnvironment:
    return PluginEnvironment.with_package(tmp_path, "lab_pacing", POINTS)


def end_ps(part: int) -> int:
    return (PACKETS - 1) * part * FULL_PS + 2 * (FULL_PS + ACK_PS) + 4 * LATENCY_PS


@pytest.mark.parametrize("interpreted", mostly_long(["0", "1"], ["1"]))
def test_a_control_of_a_plug_in_runs_beside_dcqcn(
    there: PluginEnvironment, interpreted: str
) -> None:
    cache = str(there.folder / "cache")
    done = there.run(BESIDE_DCQCN, NUMBA_DISABLE_JIT=interpreted, NUMBA_CACHE_DIR=cache)
    assert not done.returncode, done.stderr
    (quarter, half, dcqcn), cnps, alone = json.loads(done.stdout)
    assert end_ps(4) < quarter < end_ps(4) + 2 * ACK_PS, "the last ACK waits for a CNP"
    assert end_ps(2) < half < end_ps(2) + 2 * ACK_PS
    assert cnps == [PACKETS, PACKETS, 1]
    assert alone == [dcqcn] * 3


def test_a_job_file_names_it_with_parameters_that_are_checked_as_ours(
    there: PluginEnvironment,
) -> None:
    (there.folder / "jobs.yaml").write_text(JOBS)
    (there.folder / "none.yaml").write_text(JOBS.replace("part: 8", "part: 0"))
    (there.folder / "unknown.yaml").write_text(JOBS.replace("paced", "pased"))
    line = ("simulate", "two-leaves", "--engine", "packets", "--json", "--job")
    files = ("jobs.yaml", "none.yaml", "unknown.yaml")
    lines = ((*line, file) for file in files)
    done, wrong, unknown = there.in_turn(*lines, NUMBA_DISABLE_JIT="1")
    assert not done.returncode, done.stderr
    slow, quick = (job["iterations_ns"][0] for job in json.loads(done.stdout)["jobs"])
    assert 6 < slow / quick < 8, "of eight, less what a way takes"
    assert wrong.returncode == 2
    assert "none.yaml:5: jobs[0].collective.transport.congestion.part" in wrong.stderr
    assert "did you mean paced?" in unknown.stderr


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [
        pytest.param(
            ("float(rule[ALLOWED_BPS])", "float(rule[ALLOWED_BPS].rate)"),
            "TypingError",
            marks=pytest.mark.long,
        ),
        (("STATE_CELLS, RULE_CELLS = 1, 2", "STATE_CELLS = 1"), "AttributeError"),
    ],
)
def test_one_that_does_not_compile_is_named_and_keeps_dcqcn_from_nobody(
    there: PluginEnvironment, mistake: tuple[str, str], reason: str
) -> None:
    sender = there.site / "lab_pacing/sender.py"
    sender.write_text(sender.read_text().replace(*mistake))
    program = """
from rocelab.base.errors import InputError
from rocelab.jobs.transport import TransportSpec
from rocelab.sim.packets import control
print(len(control.rule_of(TransportSpec(dcqcn="simai").control, 1e9)))
try:
    control.rule_of(TransportSpec.model_validate({"congestion": "paced"}).control, 1e9)
except InputError as error:
    print(error.message)
"""
    disabled = str(int(reason != "TypingError"))
    done = there.run(
        program, NUMBA_CACHE_DIR=str(there.folder / "cache"), NUMBA_DISABLE_JIT=disabled
    )
    assert done.stdout.startswith(
        f"16\ncongestion control paced of lab-pacing 1.2 cannot be simulated: {reason}"
    ), done.stderr


def test_dcqcn_is_one_of_them() -> None:
    spec = TransportSpec.model_validate({"congestion": {"kind": "dcqcn", "profile": "simai"}})
    assert spec == TransportSpec(dcqcn="simai")
    with pytest.raises(ValueError, match="a NIC has one congestion control"):
        TransportSpec.model_validate({"congestion": spec.control, "dcqcn": "simai"})
