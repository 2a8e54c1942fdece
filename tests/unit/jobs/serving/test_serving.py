"""Requests from arrival to last token: queues, caches on the network, and the network's part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from rocelab.base.errors import InputError
from rocelab.jobs.flow_list import FlowList
from rocelab.jobs.models import MODELS
from rocelab.jobs.served import Carried, Served
from rocelab.jobs.serving.exchanges import ExchangeTimes, exchange_times
from rocelab.jobs.serving.prefill import prefill
from rocelab.jobs.serving.requests import in_order
from rocelab.jobs.serving.times import PrefillTimes
from rocelab.jobs.serving.workload import RequestServing
from rocelab.jobs.serving_times import prompts_s
from rocelab.jobs.workload import Workload
from rocelab.jobs.workloads import JobPlace

NIC_BPS = 400e9
REQUESTS = {"prompt": {"p50": 2000, "p99": 9000}, "output": 100, "rate": 4, "first": 60}
SERVING: dict[str, Any] = {
    "model": "llama3-70b",
    "gpu": "h100",
    "tensor": 8,
    "prefill": 2,
    "decode": 2,
    "requests": REQUESTS,
}


def serving(**keys: Any) -> RequestServing:
    return RequestServing.model_validate({**SERVING, **keys})


def place_of(spec: RequestServing, nic_bps: float = NIC_BPS) -> JobPlace:
    ranks = np.arange(spec.ranks)
    return JobPlace("serving", (ranks // 8).astype(np.int32), np.full(spec.ranks, nic_bps))


def flows_of(spec: RequestServing) -> FlowList:
    flows = spec.workload(place_of(spec))
    assert isinstance(flows, FlowList)
    return flows


def alone(spec: RequestServing, later_s: float = 0.0, nic_bps: float = NIC_BPS) -> Served:
    """What requests feel if each flow takes its own time, and so much more."""
    flows, place = flows_of(spec), place_of(spec, nic_bps)
    over_s = flows.start_s + flows.size_bytes * 8 / nic_bps + later_s
    return spec.served(place, over_s)


@pytest.mark.parametrize(
    ("model", "token_bytes"),
    [("llama3-70b", 327_680), ("qwen3-235b", 192_512), ("deepseek-v3", 70_272)],
)
def test_a_token_of_a_cache_has_its_published_bytes(model: str, token_bytes: int) -> None:
    assert MODELS[model].cache_bytes == token_bytes


def test_a_cache_goes_over_every_nic_of_its_replica_in_equal_slices() -> None:
    spec = serving()
    flows, requests = flows_of(spec), spec.requests.requests(1)
    assert len(flows) == 8 * len(requests)
    assert (flows.destination % 8 == flows.source % 8).all()
    assert flows.source.max() < 16 <= flows.destination.min()
    assert flows.size_bytes.sum() == requests.prompt.sum() * 327_680
    assert set(np.bincount(flows.source % 8).tolist()) == {len(requests)}


def test_a_replica_may_have_other_numbers_of_nics_than_of_gpus() -> None:
    spec = serving(nics=4)
    assert spec.ranks == 16
    assert len(flows_of(spec)) == 4 * 60
    assert flows_of(spec).size_bytes.sum() == flows_of(serving()).size_bytes.sum()


def test_parts_of_a_cache_leave_while_later_layers_compute() -> None:
    whole, parts = flows_of(serving()), flows_of(serving(cache_parts=4))
    assert parts.size_bytes.sum() == whole.size_bytes.sum()
    plan = serving(cache_parts=4).plan(place_of(serving()))
    assert plan.transfers is not None
    first = plan.transfers.request == 0
    took_s = plan.prefilled.end_s[0] - plan.prefilled.begin_s[0]
    expected = plan.prefilled.begin_s[0] + took_s * np.repeat([0.25, 0.5, 0.75, 1], 8)
    assert plan.transfers.flows.start_s[first] == pytest.approx(expected)


def test_without_a_network_nothing_is_the_networks_part() -> None:
    spec = serving()
    flows = flows_of(spec)
    served = spec.served(place_of(spec), flows.start_s)
    assert served.by(Carried.CARRIED).latencies == served.by(Carried.NONE).latencies


def test_flows_alone_take_as_long_as_their_nics_need() -> None:
    served = alone(serving())
    assert served.by(Carried.CARRIED).latencies == served.by(Carried.ALONE).latencies
    one = alone(serving(requests={**REQUESTS, "first": 1, "prompt": 1000}))
    moved_ns = one.by(Carried.CARRIED).latency("transfer").p50_ns
    assert moved_ns == pytest.approx(1000 * 327_680 / 8 * 8 / NIC_BPS * 1e9)


def test_the_first_token_comes_after_queue_prefill_transfer_and_a_step() -> None:
    by = alone(serving(), later_s=0.02).by(Carried.CARRIED)
    parts = [by.latency(name).mean_ns for name in ("queue", "prefill", "transfer", "first")]
    assert by.latency("ttft").mean_ns == pytest.approx(sum(part or 0 for part in parts))
    e2e, ttft, itl = (by.latency(name).mean_ns or 0 for name in ("e2e", "ttft", "itl"))
    assert e2e == pytest.approx(ttft + 99 * itl)


def test_a_slower_network_makes_first_tokens_later_by_its_delay() -> None:
    now, later = alone(serving()), alone(serving(), later_s=3.0)
    before, after = (
        served.by(Carried.CARRIED).latency("ttft").mean_ns or 0 for served in (now, later)
    )
    assert after - before == pytest.approx(3e9, rel=0.01)
    assert later.by(Carried.NONE) == now.by(Carried.NONE)


def test_a_flow_that_never_ends_leaves_its_request_without_an_answer() -> None:
    spec = serving(ttft="60s")
    flows = flows_of(spec)
    over_s = flows.start_s + 0.01
    over_s[5] = np.inf
    by = spec.served(place_of(spec), over_s).by(Carried.CARRIED)
    assert by.answered == 59 and by.goodput == pytest.approx(59 / 60)
    assert by.latency("ttft").mean_ns is None and by.latency("ttft").p50_ns is not None


def test_objectives_count_the_requests_that_meet_all_of_them() -> None:
    spec = serving(ttft="250ms")
    plan = spec.plan(place_of(spec))
    assert plan.transfers is not None
    ttft = alone(spec).by(Carried.CARRIED)
    assert 0 < ttft.goodput < 1
    assert ttft.goodput_per_s == pytest.approx(ttft.goodput * (alone(spec).rate or 0))
    assert alone(serving(ttft="250ms", itl="1us")).by(Carried.CARRIED).goodput == 0


def test_reused_tokens_are_not_computed_and_do_not_travel(tmp_path: Any) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("timestamp_s,isl,osl,reused_blocks\n0,2048,5,0\n9,2048,5,3\n18,2048,5,4\n")
    sizes = {}
    computed = {}
    for reuse in ("none", "prefill", "both"):
        spec = serving(requests={"trace": str(file)}, reuse=reuse)
        plan = spec.plan(place_of(spec))
        assert plan.transfers is not None
        sizes[reuse] = (plan.transfers.cache_bytes // 327_680).tolist()
        computed[reuse] = plan.computed.tolist()
    assert computed == {"none": [2048] * 3, "prefill": [2048, 512, 1], "both": [2048, 512, 1]}
    assert sizes == {"none": [2048] * 3, "prefill": [2048] * 3, "both": [2048, 512, 1]}


def test_replicas_that_do_both_send_nothing_and_stall_answers() -> None:
    apart, together = serving(), serving(decode=None, prefill=4)
    workload = together.workload(place_of(together))
    assert isinstance(workload, Workload)
    assert all(step.sends is None for step in workload.steps)
    served = together.served(place_of(together), np.zeros(1))
    itl = [one.by(Carried.CARRIED).latency("itl").p99_ns or 0 for one in (alone(apart), served)]
    assert itl[1] > 1.2 * itl[0]
    assert served.together and served.cache_bytes == 0
    assert len({by.latencies for by in served.by_network}) == 1


def test_requests_without_room_are_refused_and_counted() -> None:
    spec = serving(
        tensor=4,
        batch_requests=16,
        requests={**REQUESTS, "prompt": {"p50": 9000, "p99": 9_000_000}},
    )
    served = alone(spec)
    assert spec.cache_tokens is not None
    prompts = spec.requests.requests(1).prompt
    assert served.rejected == int((prompts + 100 > spec.cache_tokens).sum()) > 0
    assert served.by(Carried.CARRIED).goodput == pytest.approx(1 - served.rejected / 60)
    assert "exceed the cache" in served.warnings[-1]
    with pytest.raises(InputError, match="no request fits"):
        alone(serving(requests={**REQUESTS, "prompt": 10**7}))


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValidationError, match="GPU's memory"):
        serving(tensor=1)
    serving(tensor=1, ignore_memory=True)


def test_more_flows_than_are_simulated_are_refused() -> None:
    with pytest.raises(InputError, match="at most"):
        flows_of(serving(cache_parts=1024, requests={**REQUESTS, "first": 200}))


def test_prompts_wait_for_the_replica_that_is_first_and_are_computed_together() -> None:
    times = PrefillTimes(serving(), ExchangeTimes(), 1)
    arrival = np.array([0.0, 0.0, 1e-3, 2e-3, 3e-3])
    tokens = np.array([5000, 1000, 1000, 1000, 1000])
    requests = in_order(arrival, tokens, np.ones(5, np.int64), np.zeros(5, np.int64))
    prefilled = prefill(requests, tokens, 2, times, 2500)
    assert prefilled.replica.tolist() == [0, 1, 1, 1, 1]
    alone_s = times.seconds(1000, 1000.0**2)
    # The first alone, then two that wait and fit, then the last.
    assert prefilled.begin_s[1:] == pytest.approx(
        [0, alone_s, alone_s, alone_s + times.seconds(2000, 2 * 1000.0**2)]
    )
    assert (prefilled.end_s - prefilled.begin_s)[2:4] == pytest.approx(times.seconds(2000, 2e6))


def test_a_prompt_takes_what_its_kernels_take() -> None:
    spec = serving(tensor=1, ignore_memory=True)
    times = PrefillTimes(spec, ExchangeTimes(), 1)
    whole_s = prompts_s(spec, None, 4096, 4096, 1)
    assert times.seconds(4096, 4096.0**2) == pytest.approx(whole_s, rel=1e-6)
    # The second half of a prompt whose first half is known attends to both.
    halves_s = times.seconds(2048, 2048.0**2) + times.seconds(2048, 2048.0 * (2 * 2048 + 2048))
    assert halves_s == pytest.approx(whole_s, rel=0.02)


MIXTURE: dict[str, Any] = {
    "model": "deepseek-v3",
    "gpu": "h800",
    "precision": "fp8",
    "tensor": 1,
    "prefill": 32,
    "expert": 32,
    "decode": 32,
    "routing": {"dispatch": "fp8"},
}


@pytest.mark.parametrize(("ranks", "published_us"), [(32, 155), (64, 173), (128, 192), (256, 194)])
def test_a_dispatch_by_formula_is_below_deepeps(ranks: int, published_us: float) -> None:
    """DeepEP's low-latency kernels: 128 tokens of 7,168 in fp8 to 8 of 256 experts at 400G; each
    GPU on a NIC, all over the network."""
    spec = serving(**{**MIXTURE, "expert": ranks, "prefill": ranks, "decode": ranks})
    place = JobPlace("serving", np.arange(spec.ranks, dtype=np.int32), np.full(spec.ranks, NIC_BPS))
    exchange = exchange_times(spec, place, decodes=True, seed=1)
    both = 128 * exchange.network_s / 58
    # A combine is in bf16: 2 bytes a value instead of 1 and a 32nd.
    dispatch_us = both / (1 + 2 / (1 + 4 / 128)) * 1e6
    assert 0.7 * published_us < dispatch_us < published_us


def test_experts_that_exchange_over_a_slow_network_make_tokens_later() -> None:
    spec = serving(**MIXTURE)
    fast, slow = alone(spec), alone(spec, nic_bps=NIC_BPS / 20)
    for served in (fast, slow):
        itl, ideal = (
            served.by(network).latency("itl").p50_ns or 0
            for network in (Carried.CARRIED, Carried.NONE)
        )
        assert itl > ideal
    assert (slow.by(Carried.CARRIED).latency("itl").p50_ns or 0) > 1.1 * (
        fast.by(Carried.CARRIED).latency("itl").p50_ns or 0
    )
    assert any("by formula" in line for line in spec.basis())


def test_prompts_that_never_wait_need_less_than_all_of_a_replica(tmp_path: Path) -> None:
    """Two prompts whose arrivals are 1.5 times their prefill apart: two thirds."""
    keys: dict[str, Any] = {"prefill": 1, "decode": 1}
    one = serving(**keys, requests={"rate": 1, "first": 1, "prompt": 1000, "output": 2})
    prefill_s = (alone(one).by(Carried.CARRIED).latency("prefill").p50_ns or 0) / 1e9
    file = tmp_path / "two.csv"
    file.write_text(f"timestamp_s,isl,osl\n0,1000,2\n{1.5 * prefill_s},1000,2\n")
    served = alone(serving(**keys, requests={"trace": str(file)}))
    assert served.by(Carried.CARRIED).latency("queue").highest_ns == 0
    assert served.prefill_load == pytest.approx(1 / 1.5)
    assert served.rate == pytest.approx(1 / (1.5 * prefill_s))
    assert served.cache_bytes_per_s == pytest.approx(2000 * 327_680 * (served.rate or 0) / 2)


def test_a_refused_request_still_arrives(tmp_path: Path) -> None:
    """The last of three, 1 s apart, has no room: one arrives a second all the same."""
    file = tmp_path / "three.csv"
    file.write_text("timestamp_s,isl,osl\n0,100,2\n1,100,2\n2,9000000,2\n")
    served = alone(serving(requests={"trace": str(file)}))
    assert (served.requests, served.rejected, served.rate) == (3, 1, 1)
    assert served.by(Carried.CARRIED).goodput_per_s == pytest.approx(2 / 3)
    assert "1 request exceeds" in served.warnings[-1]


@pytest.mark.parametrize("prompt", [1, 129, 1000])
def test_a_constant_speed_computes_no_more_tokens_than_a_prompt_has(prompt: int) -> None:
    """Of one GPU, and the output matrix for the last token alone."""
    model = MODELS["llama3-8b"]
    keys: dict[str, Any] = {"gpu": None, "gpu_flops": "400T", "tensor": 1, "nics": 1}
    requests = {"rate": 1, "first": 1, "prompt": prompt, "output": 2}
    by = alone(serving(model="llama3-8b", **keys, requests=requests)).by(Carried.CARRIED)
    flops = model.forward_flops(prompt, prompt) - 2 * (prompt - 1) * model.hidden * model.vocab
    assert by.latency("prefill").p50_ns == pytest.approx(flops / 400e12 * 1e9, rel=1e-3)
