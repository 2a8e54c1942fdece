"""Pages of studies: Jinja templates of bench/pages, filled from a study's document."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bench.campaign.document import DOCUMENT, Document, written
from bench.campaign.guard import LIMIT_CPUS
from bench.campaign.study import BENCH, Study


def spread(values: Sequence[float], form: str, unit: float = 1) -> str:
    """`median (min to max)` in a unit, or the single value."""
    middle = format(statistics.median(values) / unit, form)
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values) / unit:{form}} to {max(values) / unit:{form}})"


@cache
def environment() -> Environment:
    """Templates with these filters: `row` makes a line of a table of its cells, `rule` the line
    below a head, `form` formats a number as Python does, `spread` some."""
    made = Environment(
        loader=FileSystemLoader(BENCH / "pages"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters |= {
        "form": format,
        "median": statistics.median,
        "row": lambda cells: f"| {' | '.join(map(str, cells))} |",
        "rule": lambda cells: "|---" * len(cells) + "|",
        "spread": spread,
    }
    return made


def filled(page: str, figures: Mapping[str, Any]) -> str:
    """The page `page`.md with these values. Raises jinja2.UndefinedError where one is missing."""
    return environment().get_template(f"{page}.md.j2").render(figures)


def page_of(study: Study, document: Document) -> str:
    """The page of a study: its template sees the fields of the document, the document itself, and
    the study's figures."""
    fields = {
        "document": document,
        "environment": document.environment,
        "load_average": document.load_average,
        "points": document.measured,
        "rows": document.firsts,
        "missing": document.missing,
    }
    page = filled(study.stem, fields | dict(study.figures(document)))
    if document.busy_cpus > LIMIT_CPUS:
        cpus = f"{document.busy_cpus:.1f}"
        page += f"\nOther work took up to {cpus} CPUs right before a turn.\n"
    return page


def published(study: Study) -> Document:
    """The data of a study's page. Raises InputError where it is none of ours."""
    return DOCUMENT.read((BENCH / f"{study.stem}.json").read_text(encoding="utf-8"))


def files_of(study: Study, document: Document) -> Mapping[str, str]:
    """A study's data and its pages, by file name."""
    if study.publication is not None:
        return study.publication.files(document)
    return {
        f"{study.stem}.json": written(document),
        f"{study.stem}.md": page_of(study, document),
    }


def rendered(study: Study) -> Mapping[str, str]:
    """The same files of the data that is published. Raises InputError where it is none of ours."""
    if study.publication is not None:
        return study.publication.again()
    return files_of(study, published(study))
