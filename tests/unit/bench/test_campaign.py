"""The engine of campaigns: turns, what is kept, what goes wrong, and what is written in the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.campaign import command
from bench.campaign.apart import apart
from bench.campaign.guard import BusyMachineError, busy_cpus, wait_until_quiet
from bench.campaign.pages import environment, page_of, spread
from bench.campaign.run import MOST_REJECTED, Campaign
from bench.campaign.store import Store, file_name
from bench.campaign.study import Measure, RejectedSampleError, Series, Study
from rocelab import InputError, MachineError
from tests.unit.bench.documents import ENVIRONMENT, document

TURNS = 3


class Machine:
    """A machine whose samples are numbers, and that can fail."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.prepared: list[tuple[str, ...]] = []
        self.errors: dict[int, BaseException] = {}
        """By the number of the call."""

    def measure(self, name: str) -> dict[str, int]:
        self.taken.append(name)
        error = self.errors.pop(len(self.taken), None)
        if error is not None:
            raise error
        return {"number": len(self.taken)}

    @contextmanager
    def ready(self, names: Sequence[str]) -> Iterator[Measure]:
        self.prepared.append(tuple(names))
        yield self.measure


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def campaign(machine: Machine, tmp_path: Path) -> Campaign:
    series = [
        Series({"a": "a", "b": "b"}, machine.ready, TURNS),
        Series({"once": "once"}, machine.ready),
    ]
    study = Study(
        "tried", "nothing", lambda: series, environment=lambda: ENVIRONMENT | {"plugins": ()}
    )
    return Campaign(study, Store(tmp_path / "tried"), guard=lambda: 0.0)


def silent(_: str) -> None:
    """Nobody reads."""


def test_points_of_a_series_take_turns(campaign: Campaign, machine: Machine) -> None:
    campaign.measure(silent)
    assert machine.taken == ["a", "b", "a", "b", "a", "b", "once"]
    assert machine.prepared == [("a", "b"), ("once",)]
    assert campaign.is_whole
    measured = campaign.document().measured
    assert {name: len(samples) for name, samples in measured.items()} == {"a": 3, "b": 3, "once": 1}
    assert list(campaign.document().environment) == [*ENVIRONMENT, "plugins"]


def test_an_interrupted_campaign_continues_with_what_is_missing(
    campaign: Campaign, machine: Machine
) -> None:
    machine.errors[4] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        campaign.measure(silent)
    assert not campaign.is_whole
    machine.taken.clear()
    replace(campaign).measure(silent)
    assert machine.taken == ["b", "a", "b", "once"]
    assert campaign.is_whole
    machine.taken.clear()
    replace(campaign).measure(silent)
    assert machine.taken == []


def test_a_killed_campaign_has_kept_every_sample(tmp_path: Path) -> None:
    program = f"""
import os
from bench.campaign.run import Campaign
from bench.campaign.store import Store
from bench.campaign.study import Series, Study
from pathlib import Path
def measure(number):
    if number == 3:
        os.kill(os.getpid(), 9)
    return number
points = {{str(number): number for number in range(5)}}
study = Study("killed", "", lambda: [Series.alone(points, measure)], environment=dict)
Campaign(study, Store(Path({str(tmp_path)!r})), guard=lambda: 0.0).measure(print)
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == -9
    store = Store(tmp_path)
    assert [store.point(str(number)).samples for number in range(5)] == [(0,), (1,), (2,), (), ()]


def test_a_point_that_fails_leaves_the_others_their_turns_and_is_tried_again(
    campaign: Campaign, machine: Machine
) -> None:
    machine.errors[2] = InputError("no such lab")
    campaign.measure(silent)
    assert machine.taken == ["a", "b", "a", "a", "once"]
    assert campaign.failures == {"b": "InputError: no such lab"}
    assert not campaign.is_whole
    machine.taken.clear()
    campaign.measure(silent)
    assert machine.taken == ["b", "b", "b"]
    assert campaign.failures == {}
    assert campaign.is_whole


def test_a_defect_ends_the_campaign(campaign: Campaign, machine: Machine) -> None:
    machine.errors[1] = AssertionError("a defect")
    with pytest.raises(AssertionError):
        campaign.measure(silent)


def test_what_this_machine_lacks_is_said_and_does_not_hold_up_the_page(
    campaign: Campaign, machine: Machine
) -> None:
    machine.errors[1] = MachineError("docker is not installed")
    campaign.measure(silent)
    assert machine.taken.count("a") == 1
    assert campaign.is_whole
    assert campaign.document().missing == {"a": "docker is not installed"}


def test_a_rejected_sample_is_taken_again_at_once_and_counted(
    campaign: Campaign, machine: Machine
) -> None:
    machine.errors[1] = RejectedSampleError("packets were late")
    campaign.measure(silent)
    (first, *_) = campaign.document().points
    assert (first.name, first.rejected, len(first.samples)) == ("a", 1, TURNS)


def test_a_point_whose_samples_are_rejected_again_and_again_has_failed(
    campaign: Campaign, machine: Machine
) -> None:
    most = MOST_REJECTED * TURNS + 1
    machine.errors = {turn: RejectedSampleError("late") for turn in range(1, most + 1)}
    campaign.measure(silent)
    assert campaign.failures == {"a": f"{most} samples rejected: late"}


def test_only_the_chosen_points_are_measured(campaign: Campaign, machine: Machine) -> None:
    chosen = replace(campaign, only="[ab]", turns=1)
    chosen.measure(silent)
    assert machine.taken == ["a", "b"]
    assert not chosen.is_whole
    with pytest.raises(InputError, match="no point fits c"):
        replace(campaign, only="c").measure(silent)


def test_points_of_another_machine_are_not_continued(campaign: Campaign) -> None:
    replace(campaign, only="once").measure(silent)
    moved = ENVIRONMENT | {"plugins": (), "cpu_model": "another", "started": "later"}
    study = replace(campaign.study, environment=lambda: moved)
    with pytest.raises(InputError, match="cpu model a CPU, which is another now") as error:
        replace(campaign, study=study).measure(silent)
    assert "--again" in str(error.value.hint)


def test_a_busy_machine_ends_the_campaign_which_continues_later(
    campaign: Campaign, machine: Machine
) -> None:
    answers = iter((0.1, 0.2))

    def guard() -> float:
        try:
            return next(answers)
        except StopIteration:
            raise BusyMachineError("other work takes 1.5 CPUs") from None

    with pytest.raises(BusyMachineError):
        replace(campaign, guard=guard).measure(silent)
    assert machine.taken == ["a", "b", "a", "b"]
    assert campaign.document().busy_cpus == 0.2
    campaign.measure(silent)
    assert campaign.is_whole


def test_the_guard_waits_for_other_work_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = iter((1.5, 0.9, 0.1))
    monkeypatch.setattr("bench.campaign.guard.busy_cpus", lambda: next(cpus))
    assert wait_until_quiet() == 0.1
    monkeypatch.setattr("bench.campaign.guard.busy_cpus", lambda: 2.0)
    with pytest.raises(BusyMachineError, match=r"2\.0 CPUs"):
        wait_until_quiet(patience_s=-1)


def test_a_busy_machine_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            assert busy_cpus() > 0
        finally:
            process.kill()


Command = Callable[..., str]


@pytest.fixture
def run(
    campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Command:
    """The command of the study, whose template prints how many samples a point has."""
    pages, bench = tmp_path / "pages", tmp_path / "bench"
    pages.mkdir()
    bench.mkdir()
    loop = "{% for name, samples in points.items() %}"
    (pages / "tried.md.j2").write_text(
        f"{loop}{{{{ name }}}}: {{{{ samples|length }}}}\n{{% endfor %}}"
    )
    monkeypatch.setattr(environment().loader, "searchpath", [str(pages)])
    monkeypatch.setattr("bench.campaign.pages.BENCH", bench)
    monkeypatch.setattr("bench.campaign.study.BENCH", bench)
    monkeypatch.setattr(command, "busy_cpus", lambda: 0.0)
    monkeypatch.setattr(command, "study_of", lambda _: campaign.study)

    def call(code: int = 0, **options: Any) -> str:
        with pytest.raises(SystemExit) as end:
            command.main(["tried"], busy=True, results=campaign.store.folder.parent, **options)
        assert end.value.code == code
        out: str = capsys.readouterr().out
        return out

    return call


def test_a_whole_campaign_is_published_and_renders_the_same_again(
    run: Command, campaign: Campaign, tmp_path: Path
) -> None:
    page = "a: 3\nb: 3\nonce: 1\n"
    assert run() == f"{tmp_path}/bench/tried.json\n{page}\n"
    assert (tmp_path / "bench" / "tried.md").read_text() == page
    assert not campaign.store.folder.exists()
    (tmp_path / "bench" / "tried.md").unlink()
    run(render=True)
    assert (tmp_path / "bench" / "tried.md").read_text() == page


def test_a_part_of_a_campaign_leaves_what_is_published(
    run: Command, campaign: Campaign, tmp_path: Path
) -> None:
    assert run(only="a", turns=1).endswith("tried.json\na: 1\n\n")
    assert not list((tmp_path / "bench").iterdir())
    assert (campaign.store.folder / "tried.md").read_text() == "a: 1\n"
    assert "a, 3 turns: 1 measured\n  b, 3 turns: 0 measured" in run(listed=True)
    assert run(only="b", turns=1, again=True).endswith("\nb: 1\n\n")


def test_a_failed_point_is_the_exit_code_and_no_page(
    run: Command, machine: Machine, tmp_path: Path
) -> None:
    machine.errors[1] = OSError("no room")
    assert run(code=1) == ""
    assert not list((tmp_path / "bench").iterdir())
    assert "a: 3" in run()


def test_a_function_runs_in_a_process_of_its_own_with_what_it_needs() -> None:
    assert apart(file_name, "a b / c") == "a-b-c"
    with pytest.raises(subprocess.CalledProcessError):
        apart(file_name)


def test_a_spread_is_median_least_and_most_in_a_unit() -> None:
    assert spread([3000, 1000, 2000], ",.1f", 1e3) == "2.0 (1.0 to 3.0)"
    assert spread([1], ".0f") == "1"


def test_a_page_says_that_it_was_measured_beside_other_work() -> None:
    study = Study("packet_engine", "", list)
    page = page_of(study, document())
    assert "| hosts |" in page
    busy = page_of(study, replace(document(), busy_cpus=1.25))
    assert busy.removeprefix(page) == "\nOther work took up to 1.2 CPUs right before a turn.\n"
