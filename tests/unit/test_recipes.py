"""The recipes for laptops, as far as they can be checked without an engine or a Mac: they install
what the set-up installs, and their files are those that they name."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/laptop.md").read_text()
LIMA = yaml.safe_load((ROOT / "examples/lima.yaml").read_text())
DOCKERFILE = (ROOT / "examples/container/Dockerfile").read_text()
DEVCONTAINER = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())


def packages_of_setup() -> set[str]:
    """What `./setup.sh` installs where nothing is there."""
    (listed,) = re.findall(r"^missing_packages\(\) \{\n(.*?)^\}", setup(), re.M | re.S)
    needed, _ = listed.split('[ "${1-}" = test ]')
    return set(re.findall(r"\|\| echo (\S+)$", needed, re.M))


def setup() -> str:
    return (ROOT / "setup.sh").read_text()


def test_the_vm_has_the_packages_of_the_set_up() -> None:
    (provision,) = LIMA["provision"]
    script = provision["script"]
    (listed,) = re.findall(r"--no-install-recommends (.*?)\nsystemctl", script, re.S)
    assert set(listed.replace("\\\n", " ").split()) == packages_of_setup()
    assert "frr" in packages_of_setup()
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_page_calls_the_vm_by_its_port() -> None:
    ports = set(re.findall(r"127\.0\.0\.1:(\d+)|-p (\d+) 127\.0\.0\.1", PAGE))
    assert {port for pair in ports for port in pair if port} == {str(LIMA["ssh"]["localPort"])}


def test_the_image_is_a_checkout_with_its_set_up_run() -> None:
    instructions = [
        line.partition(" ")[::2] for line in DOCKERFILE.splitlines() if line[:1].isupper()
    ]
    kinds = dict(instructions)
    assert kinds["FROM"] == DEVCONTAINER["image"] == "debian:13"
    (folder,) = re.findall(r"^COPY \. (\S+)$", DOCKERFILE, re.M)
    assert f"RUN make -C {folder} setup" in DOCKERFILE
    assert kinds["ENV"].startswith(f"PATH={folder}/.venv/bin:")
    assert json.loads(kinds["ENTRYPOINT"]) == ["rocelab"]


def test_the_image_has_nothing_that_was_made_here() -> None:
    ignored = set((ROOT / ".dockerignore").read_text().split())
    made = (ROOT / ".gitignore").read_text().replace("/", "").split()
    caches = {name for name in made if re.fullmatch(r"\..*_cache", name)}
    assert {".git", ".*_cache", "**/__pycache__"} <= ignored
    assert set(made) - caches - {"__pycache__"} <= ignored


def test_the_dev_container_may_make_labs() -> None:
    assert DEVCONTAINER["privileged"] and DEVCONTAINER["init"]
    assert DEVCONTAINER["postCreateCommand"] == "make setup"
