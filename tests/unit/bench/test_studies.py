"""The pages of studies: each is that of its data, and every study can be listed."""

from __future__ import annotations

import pytest

from bench.campaign.command import study_of
from bench.campaign.document import DOCUMENT
from bench.campaign.pages import files_of, published
from bench.campaign.store import file_name
from bench.campaign.study import BENCH
from bench.studies import STUDIES
from rocelab import InputError


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_and_its_data_are_those_of_the_measurement(name: str) -> None:
    study = study_of(name)
    for file, text in files_of(study, published(study)).items():
        assert (BENCH / file).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", STUDIES)
def test_the_points_of_a_study_have_files_of_their_own(name: str) -> None:
    points = [point for series in study_of(name).series() for point in series.points]
    assert points
    assert len({file_name(point) for point in points}) == len(points)


@pytest.mark.parametrize("name", STUDIES)
def test_what_was_measured_are_points_of_the_study(name: str) -> None:
    study = study_of(name)
    points = {point for series in study.series() for point in series.points}
    assert {point.name for point in published(study).points} <= points


def test_every_template_is_a_page_of_a_study() -> None:
    templates = {path.name.removesuffix(".md.j2") for path in BENCH.glob("pages/*.md.j2")}
    assert templates == {study_of(name).stem for name in STUDIES}
    assert all((BENCH / f"{name}.md").exists() for name in templates)


def test_a_name_that_is_no_study_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InputError, match="no study speed") as error:
        study_of("speed")
    assert "packet_engine" in str(error.value.hint)
    assert DOCUMENT.version == 1
