"""Fits what hosts take, and how much they let through, to a table of nccl-tests.

A simulated time is the network's own latency, what hosts take, and bytes at a rate. `fit_hosts`
scales the last two until the simulation meets the measured times: one factor for launch, step and
the latency between GPUs, one for the rate of what is slowest, a NIC or the fabric between GPUs.
With one number of ranks no more can be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from scipy.optimize import nnls  # type: ignore[import-untyped]

from rocelab.base.arrays import Floats
from rocelab.base.errors import InputError
from rocelab.base.units import BANDWIDTH, DURATION, RATE
from rocelab.base.wording import counted
from rocelab.hosts.host_spec import HostModelSpec

ROUNDS = 4
"""Fits, each to simulations with the factors of the one before: an algorithm that is chosen by size
may change with them."""

SETTLED = 0.01
"""Factors that change by less are those of the fit."""

BEND = 0.05
"""Relative errors beyond which a size counts by its error, and not by the square of it."""

LEAST_LATENCY, LEAST_BYTES = 0.25, 0.5
"""The share of a measured time that latency, or bytes, must take at some size to be known."""

SLOWER = 0.8


@dataclass(frozen=True, slots=True)
class HostTimes:
    """What a simulated size takes, in ns."""

    network: float
    """The latency of links and switches."""

    hosts: float
    sending: float


@dataclass(frozen=True, slots=True)
class FittedSize:
    """A size, in ns. held_out: predicted by a fit to the other half of the sizes; None where the
    fit had it."""

    size_bytes: int
    measured_ns: float
    fitted_ns: float
    held_out_ns: float | None

    @property
    def error(self) -> float:
        """Of the fit, relative to what was measured."""
        return self.fitted_ns / self.measured_ns - 1

    @property
    def held_out_error(self) -> float | None:
        """Of the prediction."""
        return None if self.held_out_ns is None else self.held_out_ns / self.measured_ns - 1


@dataclass(frozen=True, slots=True)
class HostFit:
    """A type of server that meets measured times."""

    server: HostModelSpec
    sizes: tuple[FittedSize, ...]
    undetermined: tuple[str, ...]
    """What the sizes do not say, as sentences."""

    @property
    def median_held_out(self) -> float | None:
        """The median error of the sizes that were predicted, without its sign."""
        errors = [
            abs(size.held_out_error) for size in self.sizes if size.held_out_error is not None
        ]
        return median(errors) if errors else None


@dataclass(frozen=True, slots=True)
class _Scales:
    latency: float = 1.0
    rate: float = 1.0
    knows_latency: bool = True
    knows_rate: bool = True


Simulated = Callable[[HostModelSpec, int, bool], float]
"""The time of a size in ns, with a type of server; False: links and switches take no time."""


def fit_hosts(
    base: HostModelSpec,
    times_ns: Mapping[int, float],
    line_bps: float,
    simulated: Simulated,
    source: str,
) -> HostFit:
    """The server that meets the times of sizes, in bytes. line_bps: of a NIC in the lab. source:
    what was measured, in words. Raises InputError for fewer than two sizes, and times that no
    server of this kind takes."""
    sizes = sorted(times_ns)
    if len(sizes) < 2:
        raise InputError(
            f"{counted(len(sizes), 'size')} does not say what hosts take",
            hint="measure sizes that are far apart, for example -b 8 -e 1G -f 2",
        )
    fitting = _Fitting(_capped(base, line_bps), simulated, sizes)
    whole = fitting.scales(sizes, times_ns)
    server = fitting.scaled(whole)
    half = fitting.scaled(fitting.scales(sizes[::2], times_ns)) if len(sizes) > 3 else None
    rows = tuple(
        FittedSize(
            size,
            times_ns[size],
            simulated(server, size, True),
            simulated(half, size, True) if half is not None and number % 2 else None,
        )
        for number, size in enumerate(sizes)
    )
    return HostFit(_sourced(server, whole, fitting.rate_key, source), rows, fitting.unknown(whole))


class _Fitting:
    def __init__(self, base: HostModelSpec, simulated: Simulated, sizes: Sequence[int]) -> None:
        self.base, self._simulated = base, simulated
        self.rate_key = self._slowest(sizes[-1])

    def _slowest(self, size: int) -> str:
        """The key of the rate that decides on the time of a size."""
        if self.base.fabric is None:
            return "nic.cap"
        slower = {
            key: self._simulated(_scaled(self.base, 1.0, SLOWER, key), size, False)
            for key in ("nic.cap", "fabric.bandwidth")
        }
        return max(slower, key=slower.__getitem__)

    def scaled(self, scales: _Scales) -> HostModelSpec:
        """The server with these factors."""
        return _scaled(self.base, scales.latency, scales.rate, self.rate_key)

    def scales(self, sizes: Sequence[int], times_ns: Mapping[int, float]) -> _Scales:
        """The factors that meet the times of some sizes."""
        scales = _Scales()
        measured = np.array([times_ns[size] for size in sizes])
        for _ in range(ROUNDS):
            server = self.scaled(scales)
            parts = [self._parts(server, size) for size in sizes]
            columns = np.array([(part.hosts, part.sending) for part in parts])
            network = np.array([part.network for part in parts])
            latency, sending, knows = _solved(columns, measured - network, measured)
            scales = replace(
                scales,
                latency=scales.latency * latency,
                rate=scales.rate / sending,
                knows_latency=knows[0],
                knows_rate=knows[1],
            )
            if abs(latency - 1) < SETTLED and abs(sending - 1) < SETTLED:
                break
        return scales

    def _parts(self, server: HostModelSpec, size: int) -> HostTimes:
        """What a size takes with a server."""
        timeless = _scaled(server, 0.0, 1.0, self.rate_key)
        whole = self._simulated(server, size, True)
        without = self._simulated(timeless, size, True)
        sending = self._simulated(timeless, size, False)
        return HostTimes(without - sending, whole - without, sending)

    def unknown(self, scales: _Scales) -> tuple[str, ...]:
        """What the sizes do not say."""
        sentences = []
        if scales.knows_latency:
            sentences.append(
                "launch, step and the latency between GPUs are scaled by one factor: tables of "
                "other numbers of ranks would tell them apart"
            )
        else:
            sentences.append(
                "the sizes are too large to say what hosts take (at no size "
                f"{LEAST_LATENCY:.0%} of the time): launch, step and latency stay as they were; "
                "add small sizes (-b 8)"
            )
        if not scales.knows_rate:
            sentences.append(
                "the sizes are too small to say how fast hosts send (at no size "
                f"{LEAST_BYTES:.0%} of the time): {self.rate_key} stays as it was; add large sizes "
                "(-e 1G)"
            )
        return tuple(sentences)


def _solved(
    columns: Floats, target: Floats, measured: Floats
) -> tuple[float, float, tuple[bool, bool]]:
    """The factors of both columns, n x 2, which meet `target` with the least relative errors, large
    ones counted less; 1 for a column that no size tells. Raises InputError for times below what
    links and switches take alone."""
    if not (target > 0).any():
        raise InputError(
            "the measured times are below the latency of the lab's links alone",
            hint="give the lab's links.delay, or another lab",
        )
    rows, right = columns / measured[:, None], target / measured
    weights = np.ones(len(right))
    factors = np.ones(2)
    for _ in range(20):
        root = np.sqrt(weights)[:, None]
        scale = np.maximum(np.linalg.norm(rows * root, axis=0), 1e-30)
        solution, _ = nnls(rows * root / scale, right * root[:, 0])
        factors = solution / scale
        weights = 1 / np.maximum(np.abs(rows @ factors - right), BEND)
    shares = (rows * factors).max(axis=0)
    knows = bool(shares[0] >= LEAST_LATENCY), bool(shares[1] >= LEAST_BYTES)
    if not knows[0]:
        factors = _alone(rows[:, 1], right - rows[:, 0], 1)
    elif not knows[1]:
        factors = _alone(rows[:, 0], right - rows[:, 1], 0)
    return float(max(factors[0], 1e-6)), float(max(factors[1], 1e-6)), knows


def _alone(column: Floats, right: Floats, place: int) -> Floats:
    """The factor of one column, 1 for the other: the median of the sizes' own."""
    factors = np.ones(2)
    factors[place] = max(0.0, float(np.median(right[column > 0] / column[column > 0])))
    return factors


def _capped(server: HostModelSpec, line_bps: float) -> HostModelSpec:
    """The server with the cap of NICs that it has in a lab, said outright."""
    bps = min(server.model.nic_limit_bps, line_bps)
    return _with(server, {"nic": {"cap": RATE.written(round(bps))}, "gpu": {"cap": None}})


def _scaled(server: HostModelSpec, latency: float, rate: float, key: str) -> HostModelSpec:
    """The server with scaled times, and the rate of that key."""
    costs, fabric = server.costs, server.fabric
    changes: dict[str, dict[str, str | None]] = {
        "costs": {
            name: DURATION.written(round(getattr(costs, name) * latency))
            for name in ("launch", "step", "message")
        }
    }
    if fabric is not None:
        changes["fabric"] = {"latency": DURATION.written(round(fabric.latency * latency))}
    if key == "nic.cap":
        changes["nic"] = {"cap": RATE.written(max(1, round((server.nic.cap or 0) * rate)))}
    elif fabric is not None:
        bandwidth = max(10**6, round(fabric.bandwidth * rate / 10**6) * 10**6)
        changes["fabric"]["bandwidth"] = BANDWIDTH.written(bandwidth)
    return _with(server, changes)


def _with(server: HostModelSpec, changes: Mapping[str, Mapping[str, str | None]]) -> HostModelSpec:
    data = server.model_dump(mode="json", exclude_none=True)
    for block, keys in changes.items():
        inner = {**data.get(block, {}), **keys}
        if block in ("nic", "gpu"):
            inner.pop("pcie", None)
        data[block] = {name: value for name, value in inner.items() if value is not None}
    data["sources"] = {
        key: text
        for key, text in data.get("sources", {}).items()
        if key not in ("nic.pcie", "gpu.pcie")
    }
    return HostModelSpec.model_validate(data)


def _sourced(server: HostModelSpec, scales: _Scales, rate_key: str, source: str) -> HostModelSpec:
    """The server with the sources of what was fitted."""
    fitted: dict[str, str] = {}
    if scales.knows_latency:
        keys = ["costs.launch", "costs.step"]
        keys += ["fabric.latency"] if server.fabric is not None else []
        fitted |= dict.fromkeys(keys, f"fitted to {source}, by one factor of {scales.latency:.3g}")
    if scales.knows_rate:
        fitted[rate_key] = f"fitted to {source}"
    data = server.model_dump(mode="json", exclude_none=True)
    name = f"{server.name[:33].rstrip('.-')}-fitted"
    return HostModelSpec.model_validate(
        {**data, "name": name, "sources": {**server.sources, **fitted}}
    )
