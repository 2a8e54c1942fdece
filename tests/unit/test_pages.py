"""The pages of the documentation: each is in the site, the reference is as the code has it, and
links lead somewhere. `make docs` checks links of the site again, as it has them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from docs.command_pages import COMMAND_PAGES
from docs.commandline import commands, names_of, parameters
from docs.documents import field_texts
from docs.generate import navigated
from docs.generate import pages as generated_pages
from docs.repository import settings_with, web_address
from rocelab.cli.main import command_line

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "[!.]*/README.md",
        "tests/*/README.md",
        "bench/*.md",
        "docs/*.md",
        "docs/*/*.md",
    )
    for path in ROOT.glob(pattern)
)

MOST_README_WORDS = 1200
MOST_WORDS = 5000


def pages(nav: list[Any]) -> list[str]:
    """The pages that a navigation names, in order."""
    named: list[str] = []
    for entry in nav:
        for target in [entry] if isinstance(entry, str) else entry.values():
            named += pages(target) if isinstance(target, list) else [target]
    return named


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_navigation_once() -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text())
    docs = ROOT / "docs"
    written = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    assert sorted(pages(settings["project"]["nav"])) == written


def test_the_reference_is_what_the_code_says() -> None:
    generated = generated_pages()
    folders = {
        f"{folder}/{path.name}"
        for folder in ("man", "commands", "documents", "../schemas")
        for path in (ROOT / "docs" / folder).iterdir()
    }
    assert set(generated) == {"api.md", "commands.md", "documents.md", "layers.svg", *folders}
    for page, text in generated.items():
        assert (ROOT / "docs" / page).read_text() == text, f"`make docs` writes {page} anew"
    settings = (ROOT / "zensical.toml").read_text()
    assert navigated(settings) == settings, "`make docs` writes the navigation anew"


def test_every_command_has_a_page_with_an_example_and_words_to_search_for() -> None:
    names = {" ".join(words): command for words, command, _ in commands(command_line())}
    assert COMMAND_PAGES.keys() == names.keys(), "docs/command_pages.py has the examples"
    for name, page in COMMAND_PAGES.items():
        has_example = f"rocelab {name} " in (names[name].help or "")
        assert bool(page.example) is not has_example, name
        assert page.other_words
    assert "stop" in COMMAND_PAGES["down"].other_words


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_a_page_of_the_docs_has_at_most_5000_words(page: str) -> None:
    assert len((ROOT / "docs" / page).read_text().split()) <= MOST_WORDS


@pytest.mark.skipif(
    shutil.which("groff") is None,
    reason="groff is not installed: whether it renders the manual pages is not checked",
)
def test_every_manual_page_renders_without_a_warning_and_with_every_option() -> None:
    names = sorted(path.name for path in (ROOT / "docs/man").iterdir())
    done = subprocess.run(
        # The page's width, so that no option is broken; no attributes of a terminal.
        ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=200n", *names],
        cwd=ROOT / "docs/man",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    for words, command, _ in commands(command_line()):
        assert f"{'-'.join(('rocelab', *words)).upper()}(1)" in done.stdout
        for parameter in parameters(command):
            assert f"\n       {', '.join(names_of(parameter))}" in done.stdout


def test_the_readme_has_at_most_1200_words() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MOST_README_WORDS


@dataclass(frozen=True)
class Figure:
    """A figure."""

    low: int | None
    """Its lower bound, None where unknown."""
    unit: str


def test_the_string_below_a_field_says_what_the_key_is() -> None:
    assert field_texts(Figure) == {"low": "Its lower bound, `null` where unknown."}


@pytest.mark.parametrize("page", sorted(set(PAGES)))
def test_links_lead_to_a_file_and_a_heading(page: str) -> None:
    file = ROOT / page
    text = re.sub(r"^```.*?^```", "", file.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (file.parent / path) if path else file
        assert linked.exists(), target
        in_site = linked.resolve().is_relative_to(ROOT / "docs")
        assert in_site or not page.startswith("docs/"), f"the site does not have {target}"
        assert not anchor or anchor in anchors(linked.read_text()), target


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@forge.example.com:group/rocelab.git", "https://forge.example.com/group/rocelab"),
        ("ssh://git@forge.example.com:2222/group/rocelab.git", "https://forge.example.com/group/rocelab"),
        ("https://forge.example.com/a/b/rocelab.git", "https://forge.example.com/a/b/rocelab"),
        ("https://me:secret@forge.example.com/a/rocelab/", "https://forge.example.com/a/rocelab"),
        ("/srv/git/rocelab.git", None),
        ("file:///srv/git/rocelab.git", None),
        ("../rocelab", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_site_links_to_the_repository_that_it_was_cloned_from(
    remote: str, address: str | None
) -> None:
    assert web_address(remote) == address
    nav = tomllib.loads(settings_with(address))["project"]["nav"]
    assert nav[-1] == ({"Repository": address} if address else nav[-1])
    assert ("Repository" in nav[-1]) is (address is not None)
