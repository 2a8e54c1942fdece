"""The pages of studies: each is that of its data, and every study can be listed."""

from __future__ import annotations

import pytest

from bench.campaign.command import study_of
from bench.campaign.document import DOCUMENT
from bench.campaign.pages import published, rendered
from bench.campaign.store import file_name
from bench.campaign.study import BENCH
from bench.studies import STUDIES
from rocelab import InputError

IN_BENCH = [name for name in STUDIES if study_of(name).publication is None]


@pytest.mark.parametrize("name", STUDIES)
def test_pages_and_data_are_those_of_the_measurement(name: str) -> None:
    study = study_of(name)
    for file, text in rendered(study).items():
        if not file.endswith(".svg"):
            assert (study.folder / file).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", STUDIES)
def test_the_points_of_a_study_have_files_of_their_own(name: str) -> None:
    points = [point for series in study_of(name).series() for point in series.points]
    assert points
    assert len({file_name(point) for point in points}) == len(points)


@pytest.mark.parametrize("name", IN_BENCH)
def test_what_was_measured_are_points_of_the_study(name: str) -> None:
    study = study_of(name)
    points = {point for series in study.series() for point in series.points}
    assert {point.name for point in published(study).points} <= points


def test_every_template_is_a_page_of_a_study() -> None:
    templates = {path.name.removesuffix(".md.j2") for path in BENCH.glob("pages/*.md.j2")}
    pages = {file.name for name in STUDIES for file in study_of(name).folder.glob("*.md")}
    assert {f"{name}.md" for name in templates} <= pages
    assert {study_of(name).stem for name in STUDIES} <= templates


def test_a_name_that_is_no_study_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InputError, match="no study speed") as error:
        study_of("speed")
    assert "packet_engine" in str(error.value.hint)
    assert DOCUMENT.version == 1
