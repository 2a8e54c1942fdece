"""Types of servers for tests."""

from __future__ import annotations

from typing import Any

from rocelab.hosts.host_spec import HostModelSpec


def server(
    *,
    name: str = "four",
    gpus: int = 4,
    nics: int = 4,
    kind: str = "switch",
    bandwidth: str = "100GB/s",
    latency: str = "0ns",
    servers: int = 1,
    launch: str = "0ns",
    step: str = "0ns",
    cap: str | None = None,
    gpu_cap: str | None = None,
    fabric: str | None = "",
    **more: Any,
) -> HostModelSpec:
    """A server of four GPUs on a switch, a NIC each, that takes no time unless it says so. fabric:
    None for GPUs that reach each other over the network."""
    data: dict[str, Any] = {
        "name": name,
        "gpus": gpus,
        "nics": nics,
        "costs": {"launch": launch, "step": step},
        **more,
    }
    if fabric is not None:
        data["fabric"] = {
            "kind": kind,
            "bandwidth": bandwidth,
            "latency": latency,
            "servers": servers,
        }
    for block, value in (("nic", cap), ("gpu", gpu_cap)):
        if value is not None:
            data[block] = {"cap": value}
    return HostModelSpec.model_validate(data)
