"""The results of `bench.endpoints` as files: every measurement as JSON, medians as tables.

Writes measurements by sender and condition, and pacing with and without queues, to endpoints.json
and endpoints.md next to this file.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.pacing import Pacing
from bench.throughput import IN_FLIGHT, MEASURED_S, PAYLOAD_BYTES, Throughput
from bench.written import write
from rocelab.results.environment import Environment

TARGET_PER_S = 100_000
RATE_ERROR_TARGET = 0.01
Load = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Condition:
    """The varied conditions besides the sender."""

    queues: bool
    steered: bool

    @property
    def label(self) -> str:
        queues = "port queues" if self.queues else "no port queues"
        return f"{queues}, steered to a second CPU" if self.steered else queues


CONDITIONS = tuple(
    Condition(queues, steered) for queues in (True, False) for steered in (False, True)
)


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement, or the reason why there is none."""

    sender: str
    condition: Condition
    throughput: Throughput | None
    missing: str | None = None


SENDERS: Mapping[str, str] = {
    "scapy-sendp": "Scapy `sendp`, packets built before",
    "scapy-sendpfast": "Scapy `sendpfast` (tcpreplay, preloaded, top speed)",
    "udp-sendto": "UDP socket, `sendto` in a Python loop",
    "udp-sendto-c": "UDP socket, `sendto` in a C loop",
    "packet-send-c": "packet socket, `send` of one frame in a C loop",
    "agent, 1 QP": "**agent, 1 queue pair**",
    "agent, 8 QP": "**agent, 8 queue pairs**",
}
KERNEL_PATH = ("udp-sendto-c", "packet-send-c")
"""Senders that show the kernel's path alone: the faster one counts."""


def spread(values: Sequence[float], form: str) -> str:
    """`median (min to max)`, or the single value."""
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):{form}} to {max(values):{form}})"


def kernel_rate(measured: Sequence[Measured], condition: Condition) -> float | None:
    """Packets per second of the faster C loop, by medians; None if neither ran."""
    medians = [
        statistics.median(one.packets_per_s for one in row)
        for sender in KERNEL_PATH
        if (row := _of(measured, sender, condition))
    ]
    return max(medians, default=None)


def _of(measured: Sequence[Measured], sender: str, condition: Condition) -> list[Throughput]:
    return [
        one.throughput
        for one in measured
        if one.throughput is not None and (one.sender, one.condition) == (sender, condition)
    ]


def throughput_table(measured: Sequence[Measured], condition: Condition) -> list[str]:
    """A row per sender, as Markdown."""
    bound = kernel_rate(measured, condition)
    lines = [
        "| sender | packets/s that arrived | of the kernel path | sender, us | receiver, us "
        "| machine, us | sample: ICRC right | PSNs count | sent again |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for sender, name in SENDERS.items():
        row = _of(measured, sender, condition)
        if not row:
            reasons = {one.missing for one in measured if one.sender == sender and one.missing}
            lines.append(f"| {name} | {', '.join(sorted(reasons))} | | | | | | | |")
            continue
        rate = statistics.median(one.packets_per_s for one in row)
        cells = [
            name,
            spread([one.packets_per_s for one in row], ",.0f"),
            f"{rate / bound:.0%}" if bound else "",
            spread([one.sender_us for one in row], ".1f"),
            spread([one.receiver_us for one in row], ".1f") if _is_agent(sender) else "",
            spread([one.machine_us for one in row], ".1f"),
            _share(row, lambda one: (one.sample.right_icrcs, one.sample.frames)),
            _share(row, lambda one: (one.sample.counted, one.sample.steps)),
            f"{sum(one.retransmitted for one in row):,}" if _is_agent(sender) else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    troubles = {one.trouble for sender in SENDERS for one in _of(measured, sender, condition)}
    return lines + [
        f"\nNot as it should be: {text}." for text in sorted(troubles - {None}, key=str)
    ]


def _is_agent(sender: str) -> bool:
    return sender.startswith("agent")


def _share(runs: Sequence[Throughput], parts: Callable[[Throughput], tuple[int, int]]) -> str:
    right, total = (sum(numbers) for numbers in zip(*map(parts, runs), strict=True))
    return f"{right:,} of {total:,}"


def verdict(measured: Sequence[Measured], condition: Condition) -> str:
    """The agent's figure compared with the target and the kernel path's, as a sentence."""
    rates = {
        count: statistics.median(one.packets_per_s for one in row)
        for count in (1, 8)
        if (row := _of(measured, f"agent, {count} QP", condition))
    }
    if not rates:
        return "No agent was measured."
    said = ", ".join(
        f"{rate:,.0f}/s over {count} queue pair{'s' if count > 1 else ''}"
        for count, rate in rates.items()
    )
    best = max(rates.values())
    met = "reaches" if best >= TARGET_PER_S else "misses"
    bound = kernel_rate(measured, condition)
    ratio = f", {best / bound:.0%} of what the kernel path alone carries" if bound else ""
    return f"The agent {met} {TARGET_PER_S:,}/s: {said}{ratio}."


def pacing_table(paced: Mapping[bool, Sequence[Pacing]]) -> list[str]:
    """A row per figure, a column with and one without queues; the worst of all runs."""
    rows: Sequence[tuple[str, Callable[[Pacing], float], str]] = (
        ("rate error of the worst flow", lambda one: one.worst_rate_error, ".4%"),
        ("packets lost", lambda one: one.lost, ","),
        ("most packets of one flow within 1 ms", lambda one: one.burst_of_a_flow, ","),
        ("most packets of all flows within 1 ms", lambda one: one.burst_of_all, ","),
        ("the same, 99.9th percentile", lambda one: one.burst_of_all_p999, ",.0f"),
        ("lag, 99th percentile, us", lambda one: one.lag_p99_ns / 1e3, ",.0f"),
        ("lag, maximum, us", lambda one: one.lag_max_ns / 1e3, ",.0f"),
        ("CPU of the sender per packet, us", lambda one: one.sender_us, ".1f"),
    )
    lines = ["| median (min to max) | port queues | no port queues |", "|---|---|---|"]
    for name, value, form in rows:
        cells = [spread([value(one) for one in paced[queues]], form) for queues in (True, False)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    worst = max(one.worst_rate_error for runs in paced.values() for one in runs)
    met = "is within" if worst <= RATE_ERROR_TARGET else "is not within"
    lines += ["", f"The worst rate error of all runs {met} {RATE_ERROR_TARGET:.0%}."]
    problems = {text for runs in paced.values() for one in runs for text in one.problems}
    return lines + [f"\nA run was {text}." for text in sorted(problems)]


def markdown(measured: Sequence[Measured], paced: Mapping[bool, Sequence[Pacing]]) -> str:
    """All tables."""
    lines = []
    for condition in CONDITIONS:
        title = condition.label[0].upper() + condition.label[1:]
        lines += [f"## {title}", "", verdict(measured, condition), ""]
        lines += [*throughput_table(measured, condition), ""]
    flows = next(one.flows for runs in paced.values() for one in runs)
    lines += [f"## Pacing: {flows} flows of 1,000 packets/s from one agent", ""]
    return "\n".join([*lines, *pacing_table(paced)]) + "\n"


def write_results(
    environment: Environment,
    loads: tuple[Load, Load],
    rounds: int,
    measured: Sequence[Measured],
    paced: Mapping[bool, Sequence[Pacing]],
) -> None:
    """endpoints.json with every measurement, endpoints.md with medians and the machine."""
    document = {
        "environment": asdict(environment),
        "load_average_before_and_after": loads,
        "throughput": [asdict(one) for one in measured],
        "pacing": {
            "port queues" if queues else "no port queues": [asdict(one) for one in runs]
            for queues, runs in paced.items()
        },
    }
    before, after = (", ".join(f"{one:.2f}" for one in load) for load in loads)
    lines = [
        "# Results of `make bench-endpoints`",
        "",
        f"`python -m bench.endpoints --rounds {rounds}`, {environment.started[:10]}, on:",
        "",
        *(f"- {key.replace('_', ' ')}: {value}" for key, value in asdict(environment).items()),
        f"- load average (1, 5, 15 minutes) before: {before}; after: {after}",
        "",
        f"Payload {PAYLOAD_BYTES:,} bytes, srv1-1 to srv2-1 over three switches, "
        f"{MEASURED_S:.0f} s each, {rounds} rounds in turn, median (min to max). Agents have "
        f"{IN_FLIGHT} packets in flight at most. [README](README.md) says what the columns mean.",
        "",
        "",
    ]
    write("endpoints", document, "\n".join(lines) + markdown(measured, paced))
