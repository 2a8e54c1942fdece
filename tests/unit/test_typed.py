"""Commands of the documentation: found in its text, and known to their runner."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machines.how import NotRun, Run
from tests.machines.pages import README, RUNS, UNFENCED
from tests.machines.reference import COMMAND_RUNS, EXAMPLE_RUNS, REFERENCE_PAGES
from tests.machines.typed import Typed, commands, differences, python_blocks, shown_blocks

CHECKOUT = Path(__file__).parents[2]
PAGES = (
    README,
    *(path.relative_to(CHECKOUT).as_posix() for path in sorted((CHECKOUT / "docs").rglob("*.md"))),
)

PAGE = """\
Text with `make drill`.

```
make drill     # the comment
 Restored   yes
```

| `rocelab up LAB [--as A [--json]]...`, `down` | two |
| `lab` | no command |

```
 Full convergence   130 ms
Done, all
```

```yaml
make: no command
```

```python
lab = "tiny"

print(lab)
```
```python
print("the next block")
```
"""


def test_commands_are_lines_of_blocks_and_first_cells_of_tables() -> None:
    assert commands("docs/x.md", PAGE) == [
        Typed("docs/x.md", 4, "make drill"),
        Typed("docs/x.md", 8, "rocelab up LAB"),
    ]


def test_a_block_without_a_command_is_what_one_shows() -> None:
    (block,) = shown_blocks(PAGE)
    assert differences(block, "x\n  Full   convergence 94 ms |\n Done, all") == []
    assert differences(block, "Full convergence") == [" Full convergence   130 ms", "Done, all"]


def test_blocks_of_python_are_whole_and_apart() -> None:
    assert python_blocks("docs/x.md", PAGE) == [
        Typed("docs/x.md", 21, 'lab = "tiny"\n\nprint(lab)\n'),
        Typed("docs/x.md", 26, 'print("the next block")\n'),
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_can_be_run_as_it_stands_or_is_explained(page: str) -> None:
    texts = [command.text for command in commands(page, (CHECKOUT / page).read_text())]
    known = RUNS.get(page, {})
    assert sorted(known.keys() - texts) == [], "in tests/machines/pages.py, but not in the page"
    for text in texts:
        run = known.get(text, Run())
        lines = (text,) if isinstance(run, NotRun) else run.lines or (text,)
        if isinstance(run, Run):
            unclear = [line for line in lines if re.search(r"\b[A-Z]{3,}\b(?!=)|\[|\.\.\.", line)]
            assert unclear == [], "tests/machines/pages.py has to say what is typed"


def test_every_entry_about_the_reference_is_of_a_command_in_it() -> None:
    typed = {
        command.text
        for page in REFERENCE_PAGES
        for command in commands(page, (CHECKOUT / page).read_text())
    }
    assert sorted((COMMAND_RUNS.keys() | EXAMPLE_RUNS.keys()) - typed) == []


@pytest.mark.parametrize("page", PAGES)
def test_what_a_command_is_said_to_show_is_a_block_of_its_page(page: str) -> None:
    blocks = shown_blocks((CHECKOUT / page).read_text())
    for run in RUNS.get(page, {}).values():
        if isinstance(run, Run) and run.block:
            assert [block for block in blocks if block.startswith(run.block)]


def test_make_targets_in_sentences_of_the_readme_are_run_or_explained() -> None:
    text = (CHECKOUT / README).read_text()
    named = set(re.findall(r"`(make [a-z-]+)[^`]*`", text))
    typed = {command.text for command in commands(README, text)}
    assert sorted(named - typed - UNFENCED.keys()) == []
