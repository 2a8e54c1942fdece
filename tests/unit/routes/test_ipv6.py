"""Labs over IPv6 on paper: the scalar and the array models give flows the same paths."""

from __future__ import annotations

from ipaddress import ip_address

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.labfile.model import LabSpec
from rocelab.labfile.schemes.base import Headers
from rocelab.planning.build import plan
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.prediction.predictor import Setting, paths_on
from rocelab.routes.bulk import address_words, field_hashes
from rocelab.routes.multipath import UDP, Flow5
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs
from rocelab.routes.steering import ROCE_PORT, address_word, field_hash

ADDRESSES = st.ip_addresses(v=6).map(str)


@given(
    st.lists(st.tuples(ADDRESSES, ADDRESSES), min_size=1, max_size=20), st.integers(0, 2**32 - 1)
)
def test_fields_of_many_flows_are_hashed_as_those_of_each(
    ends: list[tuple[str, str]], seed: int
) -> None:
    sides = tuple(zip(*ends, strict=True))
    words = [
        address_words(np.array([list(ip_address(text).packed) for text in side], np.uint8))
        for side in sides
    ]
    for side, of_side in zip(sides, words, strict=True):
        assert of_side.tolist() == [address_word(address) for address in side]
    ports, qps = (np.full(len(ends), number, np.uint64) for number in (50_000, 77))
    source_words, destination_words = (of_side.astype(np.uint64) for of_side in words)
    headers = Headers(source_words, destination_words, ports, qps)
    assert field_hashes(headers, seed).tolist() == [
        field_hash(Flow5(source, destination, UDP, 50_000, ROCE_PORT), 77, seed)
        for source, destination in ends
    ]


def test_a_word_of_an_address_stays_what_it_is() -> None:
    assert address_word("198.18.0.1") == 0xC6120001
    assert address_word("2001:2:0:3::1") == 0xEF4FBADF


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"hashing": {"policy": "l3"}},
        {"hashing": {"policy": "custom", "fields": ["flow-label"]}},
        {"scheme": "e-ecmp"},
        {"scheme": "path-pinning"},
    ],
    ids=["l4", "l3", "flow label", "e-ecmp", "path-pinning"],
)
def test_flows_of_a_job_take_the_paths_of_each(extra: dict[str, object]) -> None:
    racks = {"racks": 3, "spines": 3, "links_per_pair": 2, "servers_per_rack": 2}
    body = {"name": "six", "fabric": racks, "addresses": {"family": "ipv6"}, **extra}
    fabric = plan(LabSpec.model_validate(body))
    transport = {"qps": 8}
    job = JobSpec.model_validate(
        {"pattern": "alltoall", "ranks": 6, "size": "1MB", "transport": transport}
    )
    rows = rows_of_jobs(plan_jobs(fabric, [job]))
    fib_of = planned_fibs(fabric, fabric.prefixes)
    paths = paths_on(fabric, rows, Setting(fib_of))
    for row, links in zip(rows, paths, strict=True):
        source, destination = (
            fabric.nics(end.server)[end.nic - 1] for end in (row.source, row.destination)
        )
        path = walk(fabric, fib_of, source, destination, row.sport, destination_qp=row.dest_qp)
        assert tuple(hop.link for hop in path.hops) == links
    trunks = {link for links in paths for link in links if link.is_between_switches}
    assert len(trunks) >= 12
