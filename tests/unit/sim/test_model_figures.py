"""Jobs of large models, simulated: the parts of an iteration, memory, latencies and their basis."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rocelab.base.documents import to_json
from rocelab.jobs.job_spec import load_jobs
from rocelab.labfile.load import load
from rocelab.report.renderers.page import html
from rocelab.report.renderers.terminal import print_document
from rocelab.report.simulation.document import simulation_document
from rocelab.results.simulation import SimulationReport, from_json
from rocelab.sim.simulate import simulate

MODEL = (
    "{layers: 6, hidden: 1024, heads: 16, ffn: 4096, expert_ffn: 512, vocab: 32000, "
    "sequence: 1024, experts: 16, top_k: 4, shared_experts: 1, dense_layers: 2, "
    "expert_groups: 4, top_groups: 2, "
    "latent: {kv_rank: 128, q_rank: 256, rope: 32, nope: 64, value: 64}}"
)
TRAINING = f"""
jobs:
  - name: learning
    iterations: 2
    training:
      model: {MODEL}
      pipeline: 2
      data: 8
      expert: 8
      micro_batches: 4
      sharding: zero1
      precision: fp8
      gpu: h800
      routing: {{exchange: per-server, dispatch: fp8, skew: 0.5}}
"""
SERVING = f"""
jobs:
  - name: answering
    start: 1ms
    inference:
      model: {MODEL}
      prefill: 8
      decode: 8
      expert: 8
      batch: 4
      prompt: 512
      output: 16
      gpu: h800
"""


Outcomes = Mapping[str, SimulationReport]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    path: Path = tmp_path_factory.mktemp("jobs") / "jobs.yaml"
    reports = {}
    for name, text in (("learning", TRAINING), ("answering", SERVING)):
        path.write_text(text)
        reports[name] = simulate(load("rail-small"), load_jobs(path))
    return reports


@pytest.mark.parametrize("name", ["learning", "answering"])
def test_parts_add_up_to_the_last_iteration(reports: Outcomes, name: str) -> None:
    outcome = reports[name].jobs[0]
    last = outcome.iterations_ns[-1]
    assert last is not None
    assert sum(part.time_ns for part in outcome.parts) == pytest.approx(last)
    assert sum(part.share for part in outcome.parts) == pytest.approx(1)


def test_a_training_job_says_what_it_waits_for(reports: Outcomes) -> None:
    parts = {part.name: part.time_ns for part in reports["learning"].jobs[0].parts}
    assert {"computation", "DP", "EP"} <= set(parts)
    assert "KV cache" not in parts


def test_serving_has_its_latencies_and_they_fit_together(reports: Outcomes) -> None:
    outcome = reports["answering"].jobs[0]
    first, between = (outcome.headline(name).modelled.median for name in ("ttft", "itl"))
    iteration = outcome.headline("iteration_time").modelled.median
    assert first + 15 * between == pytest.approx(iteration)
    assert "KV cache" in {part.name for part in outcome.parts}
    gpus = outcome.headline("written").modelled.median
    assert gpus == pytest.approx(4 / (between / 1e9))


def test_memory_and_basis_are_in_the_document(reports: Outcomes) -> None:
    for report in reports.values():
        (outcome,) = report.jobs
        assert 0 < sum(use.bytes for use in outcome.memory) < 80 * 2**30
        assert {line.split(":")[0] for line in outcome.basis} <= {"predicted", "assumed", "MFU"}
        assert from_json(to_json(report)) == report


def test_terminal_and_page_say_where_time_and_memory_go(reports: Outcomes) -> None:
    for report, headline in ((reports["learning"], "MFU"), (reports["answering"], "TTFT")):
        console = Console(file=StringIO(), width=200)
        print_document(simulation_document(report), console)
        assert isinstance(console.file, StringIO)
        for text in (console.file.getvalue(), html(simulation_document(report))):
            for words in (
                "Where an iteration goes",
                "Memory of a GPU",
                headline,
                "from the table of h800",
            ):
                assert words in text
