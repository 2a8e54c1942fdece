"""A topology file of others: what is read of it, and what cannot refuse it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.base.errors import SpecError
from rocelab.labfile.topology import TopologyFile, topology_name


def _name(folder: Path, text: str | bytes, environment: dict[str, str] | None = None) -> str:
    file = folder / "x.clab.yml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return topology_name(file, environment or {})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("name: plain", "plain"),
        ("name: 2026", "2026"),
        ("name: 010", "010"),
        ("name: 1e3 # a comment", "1e3"),
        ("name: on", "on"),
        ("name: ${LAB:=Bugs_Lab.1}", "Bugs_Lab.1"),
        ("name: $SET", "value"),
        ('{"name": "json", "topology": {}}', "json"),
        ("x: &x {kind: linux}\nname: a\ntopology: {nodes: {a: {<<: *x}}}", "a"),
        ("topology: {nodes: {a: {env: {VLAN: 010}}}}\nname: b", "b"),
        ("topology: {name: wrong, nodes: [name, {name: wrong}]}\nname: c", "c"),
        ("name: d\ntopology:\n{{ range }}\n\t- broken: [", "d"),
        ("name: e\nname: f\n---\nname: g", "e"),
        ("name: h\nx: ${open\n", "h"),
        ("x: ${open\nname: ${NONE:-i}\n", "i"),
        ("a: &n j\nname: *n", "j"),
        (b"\xef\xbb\xbfname: k\nx: \xff\x07", "k"),
        ("name:\nx: 1", ""),
        ("name: [a]", ""),
        ("- name: a", ""),
        ("name", ""),
        ("", ""),
        ("\t[", ""),
    ],
)
def test_only_the_name_matters(tmp_path: Path, text: str | bytes, name: str) -> None:
    assert _name(tmp_path, text, {"SET": "value"}) == name


def _fields(folder: Path, text: str) -> tuple[TopologyFile, dict[str, str]]:
    (folder / "x.clab.yml").write_text(text)
    file = TopologyFile(folder / "x.clab.yml", {})
    fields = file.fields(file.root, "the file")
    return file, {key: file.text(node, key) for key, node in fields.items()}


def test_scalars_are_their_text(tmp_path: Path) -> None:
    file, fields = _fields(tmp_path, "1: 010\n~: on\ntrue: 0x1f\na: null\nb: 1_000")
    assert fields == {"1": "010", "~": "on", "true": "0x1f", "a": "", "b": "1_000"}
    file.check()


def test_merged_keys_do_not_replace_own_ones(tmp_path: Path) -> None:
    text = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz: {a: 0, <<: [*x, *y]}\n"
    (tmp_path / "x.clab.yml").write_text(text)
    file = TopologyFile(tmp_path / "x.clab.yml", {})
    merged = file.fields(file.fields(file.root, "the file")["z"], "z")
    assert {key: node.value for key, node in merged.items()} == {"a": "0", "b": "2", "c": "4"}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3", 3, "twice; the first is on line 1"),
        ("a: &a\n  <<: *a", 1, "merges itself"),
        ("a: {b: 1}", 1, "a is a block of keys, expected text"),
    ],
)
def test_a_problem_has_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    (tmp_path / "x.clab.yml").write_text(text)
    file = TopologyFile(tmp_path / "x.clab.yml", {})
    for key, node in file.fields(file.root, "the file").items():
        file.fields(node, key) if "<<" in text else file.text(node, key)
    with pytest.raises(SpecError) as caught:
        file.check()
    assert caught.value.problems[0].line == line
    assert message in caught.value.problems[0].message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {{ .x }}", "Go template"),
        ("a: ${b", "not closed"),
        ("a: [" * 70 + "]" * 70, "nested deeper"),
        ("a: [", "not YAML"),
        ("a: \x07", "not YAML"),
    ],
)
def test_a_file_that_is_no_topology_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.clab.yml").write_text(text)
    with pytest.raises(SpecError, match=message):
        TopologyFile(tmp_path / "x.clab.yml", {})


def test_merges_of_merges_are_read_once(tmp_path: Path) -> None:
    bomb = "a0: &a0 {x: 1}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 40)
    )
    (tmp_path / "x.clab.yml").write_text(bomb)
    file = TopologyFile(tmp_path / "x.clab.yml", {})
    top = file.fields(file.root, "the file")
    assert file.text(file.fields(top["a39"], "a39")["x"], "x") == "1"
