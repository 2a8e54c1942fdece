"""Published parameter sets of DCQCN, by name.

`parameters` returns a set for a line rate, in the clock and the rates of the modelled network. Each
set's function names its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from rocelab.agent.dcqcn import DcqcnParameters
from rocelab.base.errors import InputError

US = 10**3
MBPS = 10**6


def _sigcomm15(line_rate_bps: int) -> DcqcnParameters:
    """Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM'15, section 5.

    For 40G links; neither the paper nor this function scales the rates. The paper gives neither a
    hyper increase (200 Mb/s is mix/config.txt of its authors' ns3-rdma) nor a minimum rate (100
    Mb/s is the default of RdmaHw::MinRate in the HPCC ns-3).
    """
    return DcqcnParameters(
        name="sigcomm15",
        algorithm="paper",
        g=1 / 256,
        initial_alpha=1.0,
        alpha_interval_ns=55 * US,
        increase_interval_ns=55 * US,
        byte_counter_bytes=10 * 10**6,
        fast_recovery_rounds=5,
        additive_increase_bps=40 * MBPS,
        hyper_increase_bps=200 * MBPS,
        min_rate_bps=100 * MBPS,
        decrease_interval_ns=0,
        clamp_target_rate=True,
        cnp_interval_ns=50 * US,
    )


def _hpcc_dcqcn(line_rate_bps: int) -> DcqcnParameters:
    """`dcqcn` of simulation/run.py, alibaba-edu/High-Precision-Congestion-Control.

    Increases scale with the line rate from 5 and 50 Mb/s at 25G. There a marked packet's own ACK
    carries the notification, so CNPs have no minimum interval.
    """
    return DcqcnParameters(
        name="hpcc-dcqcn",
        algorithm="sampled",
        g=1 / 256,
        initial_alpha=1.0,
        alpha_interval_ns=1 * US,
        increase_interval_ns=300 * US,
        byte_counter_bytes=None,
        fast_recovery_rounds=1,
        additive_increase_bps=5 * MBPS * line_rate_bps / 25e9,
        hyper_increase_bps=50 * MBPS * line_rate_bps / 25e9,
        min_rate_bps=1000 * MBPS,
        decrease_interval_ns=4 * US,
        clamp_target_rate=False,
        cnp_interval_ns=0,
    )


def _hpcc_dcqcn_paper(line_rate_bps: int) -> DcqcnParameters:
    """`dcqcn_paper` of the same run.py: timers near the paper's in the simulator's algorithm."""
    return replace(
        _hpcc_dcqcn(line_rate_bps),
        name="hpcc-dcqcn-paper",
        alpha_interval_ns=50 * US,
        decrease_interval_ns=50 * US,
        increase_interval_ns=55 * US,
    )


def _simai(line_rate_bps: int) -> DcqcnParameters:
    """`astra-sim-alibabacloud/inputs/config/SimAI.conf` of aliyun/SimAI, the same at every rate.

    That file runs it under a window (HAS_WIN 1, VAR_WIN 1), which is not part of this.
    """
    return replace(
        _hpcc_dcqcn(line_rate_bps),
        name="simai",
        increase_interval_ns=900 * US,
        additive_increase_bps=50 * MBPS,
        hyper_increase_bps=100 * MBPS,
        min_rate_bps=100 * MBPS,
    )


def _connectx4(line_rate_bps: int) -> DcqcnParameters:
    """Firmware defaults of ConnectX-4 and later, as `mlxconfig query` prints them.

    DCE_TCP_G 1019 (g = 5/1024), DCE_TCP_RTT 1, INITIAL_ALPHA_VALUE 1023, RPG_TIME_RESET 300,
    RPG_THRESHOLD 1, RPG_AI_RATE 5, RPG_HAI_RATE 50, RPG_MIN_RATE 1, RATE_REDUCE_MONITOR_PERIOD 4,
    MIN_TIME_BETWEEN_CNPS 4 (0 and 2 on some firmware), CLAMP_TGT_RATE 0 with
    CLAMP_TGT_RATE_AFTER_TIME_INC 1. RPG_GD 11 is the half in 1 - alpha/2, which keeps every cut
    above RPG_MIN_DEC_FAC 50 by itself; RATE_TO_SET_ON_FIRST_CNP 0 leaves the rate alone.
    Not mapped: RPG_BYTE_RESET 32767, whose unit and weight NVIDIA does not publish (the HPCC
    authors, too, have only the timer); fixed-point rounding of alpha.
    """
    return DcqcnParameters(
        name="connectx4",
        algorithm="sampled",
        g=5 / 1024,
        initial_alpha=1023 / 1024,
        alpha_interval_ns=1 * US,
        increase_interval_ns=300 * US,
        byte_counter_bytes=None,
        fast_recovery_rounds=1,
        additive_increase_bps=5 * MBPS,
        hyper_increase_bps=50 * MBPS,
        min_rate_bps=1 * MBPS,
        decrease_interval_ns=4 * US,
        clamp_target_rate=False,
        cnp_interval_ns=4 * US,
    )


PROFILES: Mapping[str, Callable[[int], DcqcnParameters]] = MappingProxyType(
    {
        "sigcomm15": _sigcomm15,
        "hpcc-dcqcn": _hpcc_dcqcn,
        "hpcc-dcqcn-paper": _hpcc_dcqcn_paper,
        "connectx4": _connectx4,
        "simai": _simai,
    }
)
"""Published parameter sets, each a function of the line rate in bit/s of the modelled network."""


def parameters(profile: str, line_rate_bps: int) -> DcqcnParameters:
    """The set `profile` for NICs of `line_rate_bps`, in the modelled network's clock and rates.

    Raises InputError for a name that is not in PROFILES.
    """
    if profile not in PROFILES:
        raise InputError(
            f"unknown DCQCN profile {profile!r}", hint=f"choose one of {', '.join(PROFILES)}"
        )
    return PROFILES[profile](line_rate_bps)
