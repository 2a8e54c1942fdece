"""Commands on a lab with lossless classes: `plan` shows their memory, others say what they leave
out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocelab.cli.main import main
from rocelab.cli.planning import _searched
from rocelab.planning import dependencies

LAB = """name: lossless
fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 2}
queues:
  pfc: {}
"""
DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def lossless(tmp_path: Path) -> Path:
    file = tmp_path / "lossless.yaml"
    file.write_text(LAB)
    return file


def command(*arguments: str | Path) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    return ended.value.code


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip(" ─")]


def test_the_page_s_example_is_what_plan_shows(
    lossless: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    page = (DOCS / "pfc.md").read_text()
    yaml_block, example = (page.split("```yaml\n")[1], page.split("ends with:\n\n```\n")[1])
    assert yaml_block.split("#")[0].split() == LAB.split()
    assert command("plan", lossless) == 0
    expected = words(example.split("```")[0])
    assert len(expected) == 12
    assert words(capsys.readouterr().out)[-12:] == expected


def test_the_document_has_the_memory_and_no_cycle(
    lossless: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("plan", lossless, "--json") == 0
    pfc = json.loads(capsys.readouterr().out)["pfc"]
    assert (pfc["classes"], pfc["warnings"], pfc["up_down"], pfc["cycle"]) == ([3], [], True, None)
    for switch in pfc["switches"]:
        parts = ("reserved_bytes", "headroom_bytes", "shared_bytes")
        assert sum(switch[part] for part in parts) == switch["memory_bytes"]
        needed = sum(link["needed"] * link["ports"] for link in switch["links"])
        assert needed == switch["headroom_bytes"]


@pytest.mark.parametrize(
    "arguments", ["plan", "up", "simulate --pattern alltoall", "render --out rendered"]
)
def test_memory_of_which_nothing_is_left_to_share_is_located(
    lossless: Path, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    lossless.write_text(LAB.replace("{}", "{headroom: 1GB}"))
    name, *options = arguments.split()
    assert command(name, lossless, *options) == 2
    message = capsys.readouterr().err
    assert f"{lossless}:4: queues.pfc.headroom: a switch has no memory left to share" in message


def test_the_lab_s_slack_is_apart_from_what_a_link_needs(
    lossless: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 400G a burst of 200 us is 10 MB, and at a dilation of 5000 two frames of 9,014 bytes are
    more."""
    for dilation, slack in (("1", 10**7), ("5000", 4198)):
        lossless.write_text(f"{LAB}dilation: {dilation}\n")
        assert command("plan", lossless, "--json") == 0
        pfc = json.loads(capsys.readouterr().out)["pfc"]
        links = [link for switch in pfc["switches"] for link in switch["links"]]
        assert {(link["needed"], link["lab_slack"]) for link in links} == {(95_948, slack)}


def test_a_watchdog_and_receive_buffers_are_shown_in_the_lab_s_terms(
    lossless: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = "{watchdog: {action: forward}, nic: {drain: 10%, buffer: 1MB}}"
    lossless.write_text(LAB.replace("{}", keys) + "dilation: 2500\n")
    assert command("plan", lossless) == 0
    text = capsys.readouterr().out
    assert (
        "Watchdog: forward after 400 ms (16.7 min in the lab) without a packet from a paused "
        "queue, restored after 2 s (1.39 h in the lab) without a pause." in " ".join(text.split())
    )
    assert "Receive buffer of a 400 Gb/s NIC: 1 MB, XOFF 904 kB, XON 884 kB" in text
    assert "at 10% of the link's rate" in text
    assert command("plan", lossless, "--json") == 0
    pfc = json.loads(capsys.readouterr().out)["pfc"]
    assert pfc["watchdog"] == {
        "action": "forward",
        "detection_ns": 400_000_000,
        "restoration_ns": 2_000_000_000,
        "lab_detection_ns": 1_000_000_000_000,
        "lab_restoration_ns": 5_000_000_000_000,
    }
    assert pfc["nics"] == [
        {
            "rate_bps": 400 * 10**9,
            "buffer_bytes": 10**6,
            "xoff_bytes": 10**6 - 95_948,
            "xon_bytes": 10**6 - 95_948 - 20_000,
            "drain_ppm": 100_000,
        }
    ]


def test_plan_says_that_it_does_not_know_where_routes_are_too_many(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "MOST_STEPS", 1)
    assert command("plan", "deadlock") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Whether the routes can deadlock is unknown" in text
    assert "No deadlock" not in text


def test_plan_names_the_cycle_of_the_lab_that_deadlocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert command("plan", "deadlock") == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith("A deadlock is possible: ")
    assert line in (DOCS / "deadlocks.md").read_text()
    assert command("plan", "deadlock", "--json") == 0
    pfc = json.loads(capsys.readouterr().out)["pfc"]
    assert (pfc["up_down"], pfc["searched"]) == (False, 1 + 8 + 28)
    assert pfc["cycle"]["without"] == ["rtsw1:ctsw1", "rtsw2:ctsw2"]
    senders = [link["sender"] for link in pfc["cycle"]["links"]]
    assert " -> ".join([*senders, senders[0]]) in line


def test_plan_says_how_many_failures_it_searched(
    lossless: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lossless.write_text(LAB + "routing: {valley_free: false}\n")
    assert command("plan", lossless) == 0
    assert "also after the failure of any two links." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("alone", "pairs", "scope"),
    [
        (0, False, "as long as no link fails (searched after the failure of 0 of 4 links)"),
        (2, False, "also after the failure of 2 of its 4 links alone"),
        (4, False, "also after the failure of any one link"),
        (4, True, "also after the failure of any two links"),
    ],
)
def test_plan_says_which_failures_it_searched(alone: int, pairs: bool, scope: str) -> None:
    assert _searched(alone, 4, pairs=pairs) == scope


def test_plan_warns_where_packets_may_be_lost(
    lossless: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lossless.write_text(LAB.replace("{}", "{headroom: 10KB}"))
    assert command("plan", lossless) == 0
    assert "warning: a headroom of 10 kB cannot hold the 95.9 kB" in capsys.readouterr().err


def test_a_simulation_says_that_nothing_is_paused(
    lossless: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ("--pattern", "allreduce", "--ranks", "4", "--size", "1MB")
    assert command("simulate", lossless, *job) == 0
    assert "queues.pfc has no effect here" in capsys.readouterr().err


def test_a_simulation_with_packets_warns_as_the_plan_does(
    lossless: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lossless.write_text(LAB.replace("{}", "{headroom: 10KB}"))
    job = ("--pattern", "incast", "--ranks", "4", "--size", "64KB")
    assert command("simulate", lossless, *job, "--engine", "packets") == 0
    simulated = capsys.readouterr().err
    assert command("plan", lossless) == 0
    planned = capsys.readouterr().err
    assert "warning: a headroom of 10 kB cannot hold the 95.9 kB that may arrive" in planned
    assert planned in simulated


def test_a_simulation_says_that_paths_have_no_valleys(
    lossless: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lossless.write_text(LAB + "routing: {valley_free: false}\n")
    job = ("--pattern", "allreduce", "--ranks", "4", "--size", "1MB")
    assert command("simulate", lossless, *job) == 0
    assert "routing.valley_free: false has no effect here" in capsys.readouterr().err
