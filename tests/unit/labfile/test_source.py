"""Reading a YAML file: positions, scalars, limits, and only SpecError for invalid files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import SpecError
from rocelab.base.wording import CONTROL
from rocelab.labfile.scalars import read_scalar
from rocelab.labfile.source import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_VALUES,
    parse_source,
    read_source,
    written,
)

TEXTS = st.text(max_size=8).filter(lambda text: not CONTROL.search(text))
KEYS = st.text(max_size=8)
TREES = st.recursive(
    st.integers(-(10**9), 10**9) | st.booleans() | TEXTS | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def problems_of(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_source(text, "lab.yaml")
    return [str(problem).partition("\n")[0] for problem in caught.value.problems]


def test_every_key_and_item_has_its_line() -> None:
    source = parse_source("# lab\na: 1\nb:\n  c: [x,\n      y]\n  d: {e: 2}\n", "lab.yaml")

    assert source.data == {"a": 1, "b": {"c": ["x", "y"], "d": {"e": 2}}}
    assert source.lines == {
        (): 2,
        ("a",): 2,
        ("b",): 3,
        ("b", "c"): 4,
        ("b", "c", 0): 4,
        ("b", "c", 1): 5,
        ("b", "d"): 6,
        ("b", "d", "e"): 6,
    }


def test_a_path_that_is_not_there_has_the_line_of_the_block_around_it() -> None:
    source = parse_source("a: 1\nb:\n  c: 2\n", "lab.yaml")

    assert source.line(("b", "x", 3)) == 2
    assert source.line(("x",)) == 1


def test_a_value_behind_an_alias_has_the_line_where_it_is_written() -> None:
    source = parse_source("a: &a\n  x: 1\nb: *a\n", "lab.yaml")

    assert source.data == {"a": {"x": 1}, "b": {"x": 1}}
    assert source.lines["b",] == 3
    assert source.lines["b", "x"] == 2


def test_a_duplicate_key_is_an_error_at_its_second_line() -> None:
    assert problems_of("a: 1\nb: 2\na: 3\n") == [
        "lab.yaml:3: a: given twice; the first is on line 1"
    ]


def test_a_duplicate_key_does_not_hide_those_that_follow() -> None:
    assert len(problems_of("a: {x: 1, x: 2}\nb: [{y: 1, y: 2}]\na: 1\n1: 2\n")) == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("-4", -4),
        ("0xff", 255),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("on", True),
        ("No", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("400G", "400G"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("y", "y"),
        ("=", "="),
    ],
)
def test_a_plain_scalar_is_read_as_people_mean_it(text: str, value: object) -> None:
    read = read_scalar(text, None, plain=True)

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text", ["0o7", "1e3", "1e+3", "007", "1_000", "on", "~", "1:30", "0x1F", ""]
)
def test_what_is_written_is_read_as_the_same_text(text: str) -> None:
    data = {"key": text, "list": [text], text or "-": 1}
    assert parse_source(written(data), "lab.yaml").data == data


@pytest.mark.parametrize("text", ["4", "on", "", "~", "1e3"])
def test_a_quoted_scalar_is_text(text: str) -> None:
    assert read_scalar(text, None, plain=False) == text


def test_core_tags_are_obeyed() -> None:
    text = "a: !!str 4\nb: !!float 4\nc: !!int '4'\nd: !!map {x: 1}\ne: !!seq [1]\nf: ! 4\n"

    data = parse_source(text, "lab.yaml").data
    assert data == {"a": "4", "b": 4.0, "c": 4, "d": {"x": 1}, "e": [1], "f": "4"}


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!!set", "!!binary", "!mine"])
@pytest.mark.parametrize("value", ["x", "{x: 1}", "[x]"])
def test_any_other_tag_is_refused(tag: str, value: str) -> None:
    assert problems_of(f"a: 1\nb: {tag} {value}\n") == [f"lab.yaml:2: b: unknown tag '{tag}'"]


def test_an_alias_bomb_is_refused_without_expanding_it() -> None:
    levels = 200
    lines = ["k0: &k0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 10)}]" for i in range(1, levels)]
    (problem,) = problems_of("\n".join(lines))

    assert "with its aliases expanded, the file holds more than the limit of 200,000" in problem


def test_an_alias_chain_does_not_evade_the_depth_limit() -> None:
    lines = ["k0: &k0 [x]"] + [f"k{i}: &k{i} [*k{i - 1}]" for i in range(1, 100)]

    (problem,) = problems_of("\n".join(lines))
    assert f"nested deeper than the limit of {MAX_DEPTH} levels" in problem


def test_the_limits_themselves_are_allowed() -> None:
    nested = "a: " + "[" * (MAX_DEPTH - 1) + "x" + "]" * (MAX_DEPTH - 1)
    assert parse_source(nested, "lab.yaml")
    items = MAX_VALUES - 3
    assert parse_source(f"a: [{'1, ' * items}]", "lab.yaml")
    assert problems_of(f"a: [{'1, ' * (items + 1)}]")


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "? " * 100_000, "- " * 100_000])
def test_a_file_nested_to_absurdity_is_refused(text: str) -> None:
    (problem,) = problems_of(text)

    assert "nested deeper" in problem


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as stream:
        stream.truncate(100 * 2**30)

    with pytest.raises(SpecError, match=f"larger than the limit of {MAX_FILE_BYTES:,} bytes"):
        read_source(huge)


def test_a_device_that_never_ends_is_refused() -> None:
    with pytest.raises(SpecError, match="it is not a regular file"):
        read_source(Path("/dev/zero"))


def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lab.yaml")
    with pytest.raises(SpecError, match="it is not a regular file"):
        read_source(tmp_path / "lab.yaml")


@pytest.mark.parametrize("escape", [r"\e", r"\a", r"\x9b", r"\u202e", r"\0", r"\x7f"])
def test_control_characters_that_text_has_by_escapes_are_refused_where_they_stand(
    escape: str,
) -> None:
    code = ord(yaml.safe_load(f'"{escape}"'))
    (problem,) = problems_of(f'a: 1\nb:\n  - title: "x{escape}y"\n')
    expected = f"lab.yaml:3: b[0].title: the control character U+{code:04X} is not allowed"
    assert problem == expected


def test_text_of_several_lines_and_of_any_script_is_allowed() -> None:
    text = "one\n\ttwo \u00a0 \u0646\u200c\u0647 \U0001f469\u200d\U0001f4bb"
    assert parse_source(yaml.safe_dump({"a": text}), "lab.yaml").data == {"a": text}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"lab\.yaml: there is no such file"):
        read_source(tmp_path / "lab.yaml")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="expected a file, got a directory"):
        read_source(tmp_path)


def test_a_file_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a: 1\n")
    with pytest.raises(SpecError, match="it cannot be read: Not a directory"):
        read_source(tmp_path / "file" / "lab.yaml")


def test_a_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SpecError, match="this user may not read it"):
        read_source(tmp_path / "lab.yaml")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "a\x1b[31m\n", os.fsdecode(b"\xff")])
def test_a_file_name_of_any_characters_is_safe_to_print(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_source(Path(name))

    str(caught.value).encode("utf-8")
    assert all(line.isprintable() for line in str(caught.value).splitlines())


def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: lab\r\nx: 1\r\n")

    source = read_source(path)
    assert source.data == {"name": "lab", "x": 1}
    assert source.lines["x",] == 2


@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_what_a_yaml_writer_writes_is_read_back(tree: dict[str, object]) -> None:
    text = yaml.safe_dump(tree, default_style='"')

    assert parse_source(text, "lab.yaml").data == tree


@given(st.binary(max_size=200))
def test_random_bytes_give_data_or_problems_and_nothing_else(content: bytes) -> None:
    try:
        source = parse_source(content.decode("utf-8", "replace"), "lab.yaml")
    except SpecError as error:
        assert error.problems
    else:
        assert isinstance(source.data, dict)


@given(st.text(alphabet="ab:*&!-?[]{}'\"|>%@#,. \n\t1", max_size=60))
def test_random_punctuation_gives_data_or_problems_and_nothing_else(text: str) -> None:
    try:
        source = parse_source(text, "lab.yaml")
    except SpecError as error:
        assert error.problems
    else:
        assert all(path == () or line >= 1 for path, line in source.lines.items())
