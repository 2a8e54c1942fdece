"""The pages of studies: each is that of its data, and every study can be listed."""

from __future__ import annotations

import pytest

from bench.campaign.command import study_of
from bench.campaign.document import DOCUMENT
from bench.campaign.pages import published, rendered
from bench.campaign.store import file_name
from bench.campaign.study import BENCH
from bench.studies import PUBLISHED, STUDIES
from rocelab import InputError

IN_BENCH = [name for name in PUBLISHED if study_of(name).publication is None]


@pytest.mark.parametrize("name", PUBLISHED)
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


def test_every_study_has_a_template_and_a_page_that_is_published_if_it_says_so() -> None:
    for name in STUDIES:
        study = study_of(name)
        assert (BENCH / "pages" / f"{study.stem}.md.j2").exists()
        assert study.is_published == (name in PUBLISHED)
        assert study.is_published == (study.folder / f"{study.stem}.md").exists()


def test_a_name_that_is_no_study_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InputError, match="no study speed") as error:
        study_of("speed")
    assert "packet_engine" in str(error.value.hint)
    assert DOCUMENT.version == 1
