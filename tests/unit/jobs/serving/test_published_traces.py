"""Published traces, where they have been fetched, sum up as they were summed up apart from this."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.jobs.models import MODELS
from rocelab.jobs.serving.request_spec import RequestsSpec
from rocelab.jobs.serving.summary import RequestSummary, request_summary

DATA = Path(__file__).parents[6] / "shared/data/inference"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="no published traces beside the tree")


def summary(file: str) -> RequestSummary:
    requests = RequestsSpec(trace=str(DATA / file)).listed()
    return request_summary(requests, {"llama3-70b": MODELS["llama3-70b"]})


def test_azures_trace_of_code() -> None:
    figures = summary("AzureLLMInferenceTrace_code.csv.gz")
    assert (figures.requests, figures.peak_rate) == (8819, 67)
    assert figures.rate == pytest.approx(2.57, abs=0.005)
    assert figures.gap_cv == pytest.approx(13.2, abs=0.05)
    assert (figures.prompt.p50, figures.prompt.p99) == (1469, 7436)
    assert figures.prompt.p90 == pytest.approx(5186, rel=0.002)
    assert (figures.answer.p50, figures.answer.p90) == (13, 55)
    assert figures.answer.p99 == pytest.approx(249, rel=0.02)
    (cache,) = figures.caches
    assert (cache.bytes_per_s or 0) / 1e9 == pytest.approx(1.7, abs=0.05)
    assert (cache.peak_bytes_per_s or 0) / (cache.bytes_per_s or 1) == pytest.approx(26, rel=0.05)


def test_mooncakes_conversations() -> None:
    figures = summary("mooncake_conversation.derived.csv.gz")
    assert figures.requests == 12031
    assert (round(figures.prompt.mean), round(figures.answer.mean)) == (12035, 343)
    (cache,) = figures.caches
    assert (cache.bytes_per_s or 0) / 1e9 == pytest.approx(13.4, abs=0.05)
    assert (cache.without_reused_bytes_per_s or 0) / 1e9 == pytest.approx(8.4, abs=0.05)
