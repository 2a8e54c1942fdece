"""Errors in a file that another file names never quote it, unless it is next to that one."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from tests.unit.conftest import CommandLine

SECRETS = {
    "shadow": "root:$y$j9T$SECRETHASH:19000:0:99999:7::\n",
    "lab": "name: SECRET NAME\nfabric: {kind: SECRET}\nlinks: {SECRET: 1}\n",
    "yaml": "name: [SECRET\n",
    "twice": "SECRET: 1\nSECRET: 2\n",
}
DRILL = "name: d\nlab: {}\nfaults:\n  - kind: carrier-down\n    at: 1s\n    link: rtsw1:ctsw1\n"
JOBS = (
    "name: d\nlab: {}\nphases: [{{name: a, jobs: [{{pattern: alltoall, ranks: 2, size: 1MB}}]}}]\n"
)
SWEEP = "lab: {}\njob: {{pattern: allreduce, ranks: 8, size: 1MB}}\nover: {{job.ranks: [4, 8]}}\n"
SWEEP_JOB = "lab: zone-small\njob: {}\nover: {{job.ranks: [4, 8]}}\n"


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("drill", "show"), DRILL),
        (("drill", "show"), JOBS),
        (("drill", "run"), DRILL),
        (("sweep",), SWEEP),
        (("sweep",), SWEEP_JOB),
    ],
)
def test_nothing_of_a_file_elsewhere_is_quoted(
    rocelab: CommandLine, tmp_path: Path, words: tuple[str, ...], text: str, secret: str, link: bool
) -> None:
    """Neither by its path nor by a link next to the file that names it."""
    naming, elsewhere = tmp_path / "naming", tmp_path / "elsewhere.yaml"
    naming.mkdir()
    elsewhere.write_text(SECRETS[secret])
    (naming / "link.yaml").symlink_to(elsewhere)
    (naming / "file.yaml").write_text(text.format("./link.yaml" if link else elsewhere))
    kinds = ("junit", "markdown") if words == ("drill", "run") else ()
    files = {f"--{kind}": tmp_path / kind for kind in kinds}

    outcome = rocelab(
        *words,
        str(naming / "file.yaml"),
        *chain.from_iterable((option, str(file)) for option, file in files.items()),
    )

    assert outcome.code == 2
    assert "SECRET" not in outcome.out + outcome.err
    assert "link.yaml:" in outcome.err if link else f"{elsewhere}:" in outcome.err
    assert not [file for file in files.values() if "SECRET" in file.read_text()]


@pytest.mark.parametrize(
    ("words", "text"), [(("drill", "show"), DRILL), (("sweep",), SWEEP), (("sweep",), SWEEP_JOB)]
)
def test_a_file_beside_or_below_is_quoted(
    rocelab: CommandLine, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "named.yaml").write_text("nmae: quoted\n")
    (tmp_path / "file.yaml").write_text(text.format("./below/named.yaml"))

    outcome = rocelab(*words, str(tmp_path / "file.yaml"))

    assert outcome.code == 2
    assert "nmae" in outcome.err
