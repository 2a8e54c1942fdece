"""Host models that are fitted to tables of nccl-tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rocelab.base.errors import InputError
from rocelab.hosts.host_spec import HostModelSpec
from rocelab.labfile.servers import read_server
from rocelab.sim.traces.hostfit import fit_hosts
from tests.unit.conftest import CommandLine
from tests.unit.hosts.servers import server

BASE = server(launch="10us", step="10us", latency="2us", bandwidth="100GB/s", cap="200G")
SIZES = [2**power for power in range(10, 31, 2)]
HOP_NS = 4_000.0


def formula(spec: HostModelSpec, size: int, has_links: bool) -> float:
    """A ring of four GPUs on two servers: a launch, two steps over the network and four in servers;
    the slower of NIC and NVLink."""
    model = spec.model
    assert model.local is not None
    slowest = min(model.nic_cap_bps, model.local.bandwidth_bps)
    took = model.launch_ns + 2 * model.step_ns + 4 * model.local.latency_ns
    return took + (HOP_NS if has_links else 0.0) + 1.5 * size * 8e9 / slowest


def real(size: int, latency_ns: float, gbs: float) -> float:
    return latency_ns + HOP_NS + 1.5 * size / gbs


def test_the_times_that_hosts_take_and_the_rate_of_nics_are_found() -> None:
    # Twice the latencies (38 us), and 20 GB/s instead of 25.
    times = {size: real(size, 76_000, 20) for size in SIZES}
    fit = fit_hosts(BASE, times, 400e9, formula, "a test")
    model = fit.server.model
    assert (model.launch_ns, model.step_ns) == pytest.approx((20_000, 20_000), rel=0.01)
    assert model.nic_cap_bps == pytest.approx(160e9, rel=0.01)
    assert model.local is not None and model.local.bandwidth_bps == 8e11
    assert all(abs(size.error) < 0.01 for size in fit.sizes)
    assert fit.median_held_out is not None and fit.median_held_out < 0.01
    assert fit.server.sources["costs.launch"].startswith("fitted to a test")


def test_half_of_the_sizes_are_predicted_by_the_others() -> None:
    times = {size: real(size, 76_000, 20) for size in SIZES}
    fit = fit_hosts(BASE, times, 400e9, formula, "a test")
    assert [size.held_out_ns is not None for size in fit.sizes] == [
        number % 2 == 1 for number in range(len(SIZES))
    ]


def test_an_outlier_does_not_move_the_fit() -> None:
    times = {size: real(size, 76_000, 20) for size in SIZES}
    times[SIZES[4]] *= 3
    fit = fit_hosts(BASE, times, 400e9, formula, "a test")
    assert fit.server.model.step_ns == pytest.approx(20_000, rel=0.03)
    assert fit.server.model.nic_cap_bps == pytest.approx(160e9, rel=0.03)
    assert fit.sizes[4].error == pytest.approx(1 / 3 - 1, abs=0.03)


def test_large_sizes_alone_do_not_say_what_hosts_take() -> None:
    times = {size: real(size, 76_000, 20) for size in (2**28, 2**29, 2**30)}
    fit = fit_hosts(BASE, times, 400e9, formula, "a test")
    assert fit.server.model.launch_ns == BASE.model.launch_ns
    assert "too large to say what hosts take" in fit.undetermined[0]
    assert "costs.launch" not in fit.server.sources
    assert fit.server.model.nic_cap_bps == pytest.approx(160e9, rel=0.01)


def test_small_sizes_alone_do_not_say_how_fast_hosts_send() -> None:
    times = {size: real(size, 76_000, 20) for size in (8, 64, 512)}
    fit = fit_hosts(BASE, times, 400e9, formula, "a test")
    assert fit.server.model.nic_cap_bps == 200e9
    assert any("nic.cap stays as it was" in text for text in fit.undetermined)
    assert fit.server.model.step_ns == pytest.approx(20_000, rel=0.01)


def test_the_slower_of_nics_and_nvlink_is_what_is_fitted() -> None:
    slow = server(launch="10us", step="10us", latency="2us", bandwidth="10GB/s", cap="200G")
    times = {size: real(size, 38_000, 8) for size in SIZES}
    fit = fit_hosts(slow, times, 400e9, formula, "a test")
    assert fit.server.model.nic_cap_bps == 200e9
    assert fit.server.model.local is not None
    assert fit.server.model.local.bandwidth_bps == pytest.approx(64e9, rel=0.01)


def test_one_size_and_impossible_times_are_refused() -> None:
    with pytest.raises(InputError, match="1 size does not say"):
        fit_hosts(BASE, {1024: 1e6}, 400e9, formula, "a test")
    with pytest.raises(InputError, match="below the latency of the lab's links alone"):
        fit_hosts(BASE, {1024: 1e3, 2048: 1.1e3}, 400e9, formula, "a test")


LOG = """# nThread 1 nGpus 4 minBytes 65536 maxBytes 67108864 step: 4(factor)
#
# Using devices
{devices}
#
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
{rows}
"""


def log_of(times_us: dict[int, float]) -> str:
    rows = []
    for size, us in times_us.items():
        algbw = size / us / 1e3
        rows.append(
            f"{size:12d}{size // 4:14d}     float     sum      -1 {us:8.2f} {algbw:7.2f} "
            f"{1.5 * algbw:7.2f}      0"
        )
    devices = "\n".join(
        f"#  Rank {rank:2d} Group  0 Pid   1{rank} on     host device {rank:2d} [0x0{rank}] GPU"
        for rank in range(4)
    )
    return LOG.format(devices=devices, rows="\n".join(rows))


def test_a_saved_model_is_one_that_simulations_take(
    tmp_path: Path, rocelab: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A ring of six steps: 20 us, 6 x 5 us, and 1.5 sizes at 80 GB/s.
    times = {4**power: 50 + 1.5 * 4**power / 80e3 for power in range(8, 14)}
    Path("log.txt").write_text(log_of(times))
    Path("base.yaml").write_text(
        yaml.safe_dump(
            server(launch="10us", latency="2500ns").model_dump(mode="json", exclude_none=True)
        )
    )
    ran = rocelab(
        *("reference", "rail-small", "log.txt", "--pattern", "allreduce", "--ranks", "4"),
        *("--algorithm", "ring", "--protocol", "simple", "--channels", "1"),
        *("--host-model", "./base.yaml", "--save", "host.yaml", "--json"),
    )
    assert ran.code == 0, ran.err
    fit = yaml.safe_load(ran.out)["host_model"]
    assert fit["median_held_out"] < 0.02
    saved = read_server(Path("host.yaml"))
    assert saved.model.launch_ns == pytest.approx(20_000, rel=0.05)
    assert saved.model.local is not None
    assert saved.model.local.bandwidth_bps == pytest.approx(640e9, rel=0.05)
    again = rocelab(
        *("simulate", "rail-small", "--pattern", "allreduce", "--ranks", "4", "--size", "64MB"),
        *("--host-model", "host.yaml", "--json"),
    )
    assert again.code == 0, again.err
    hosts = yaml.safe_load(again.out)["method"]["hosts"]
    assert hosts == "hosts as four-fitted; allreduce in nvls, protocol simple"


def test_saving_needs_a_type_of_server_to_begin_with(
    tmp_path: Path, rocelab: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.txt").write_text(log_of({65536: 100.0, 262144: 120.0}))
    ran = rocelab(
        *("reference", "rail-small", "log.txt", "--pattern", "allreduce", "--ranks", "4"),
        *("--save", "host.yaml"),
    )
    assert ran.code == 2
    assert "--host-model dgx-h100" in ran.err
    assert not Path("host.yaml").exists()
