"""From files to models: for the lab spec and for any other model that users write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from rocelab.base.errors import SpecError
from rocelab.base.units import DurationNs
from rocelab.base.wording import RefusedError
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.labfile.base import Name, SpecModel
from rocelab.labfile.fields import of_field, phrase
from rocelab.labfile.load import load_spec, read_model, validate
from rocelab.labfile.model import LabSpec, SeedPlan
from rocelab.labfile.source import MAX_PROBLEMS, parse_source

TINY = "name: tiny\nfabric: {kind: clos, racks: 4, spines: 2}\n"


class Flap(SpecModel):
    kind: Literal["flap"]
    link: str
    at: Annotated[DurationNs, Field(le=10**10)]
    down_for: DurationNs | None = None

    @model_validator(mode="after")
    def _not_at_the_start(self) -> Flap:
        if self.at == 0:
            raise RefusedError("expected a start after 0", "traffic starts first", keys=("at",))
        return self


class Kill(SpecModel):
    kind: Literal["kill"]
    node: str


class Limit(SpecModel):
    at_most: float


class Drill(SpecModel):
    name: Name
    faults: list[Annotated[Flap | Kill, Field(discriminator="kind")]] = Field([])
    expect: dict[str, Limit | int] = Field({})
    size: int | DurationNs = 1


def drill(text: str) -> Drill:
    return validate(parse_source(text, "drill.yaml"), Drill)


def messages(text: str, model: type[BaseModel] = LabSpec) -> list[str]:
    with pytest.raises(SpecError) as caught:
        validate(parse_source(text, "lab.yaml"), model)
    return [str(problem).partition("\n")[0] for problem in caught.value.problems]


def test_a_name_and_a_fabric_are_a_whole_spec(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)

    spec = load_spec(path)
    assert isinstance(spec.fabric, ClosSpec)
    assert (spec.name, spec.fabric.racks, spec.fabric.spines) == ("tiny", 4, 2)
    assert spec.links.rate == 400 * 10**9
    assert spec.routing.bfd is None
    assert spec.hashing.seed is SeedPlan.PER_NODE


@pytest.mark.parametrize(
    ("written", "seed"),
    [("shared", SeedPlan.SHARED), ("7", 7), ("0xffffffff", 2**32 - 1), ("{seed: 7}", 7)],
)
def test_hashing_has_a_short_form(written: str, seed: object) -> None:
    spec = validate(parse_source(f"{TINY}hashing: {written}\n", "lab.yaml"), LabSpec)
    assert spec.hashing.seed == seed


@pytest.mark.parametrize(
    ("written", "interval_ms"),
    [("true", 300), ("{}", 300), ("{interval: 50ms}", 50), ("false", None), ("off", None)],
)
def test_bfd_is_on_off_or_its_timers(written: str, interval_ms: int | None) -> None:
    text = f"{TINY}routing:\n  bfd: {written}\n"
    bfd = validate(parse_source(text, "lab.yaml"), LabSpec).routing.bfd
    assert (bfd and bfd.interval // 10**6) == interval_ms


def test_all_problems_are_told_at_once_in_the_order_of_lines() -> None:
    texts = messages("fabric:\n  spines: 0\n  racks: 0\n  rack: 1\nqueues: {buffer: 1}\nname: X\n")

    assert [message.split(": ")[0] for message in texts] == [
        f"lab.yaml:{line}" for line in (2, 3, 4, 5, 6)
    ]


def test_no_message_echoes_a_megabyte() -> None:
    megabyte = "x" * 900_000
    for key in (f"name: {megabyte}", f"{megabyte}: 1", f"hashing: {megabyte}"):
        assert all(len(message) < 400 for message in messages(f"{key}\nfabric: {{racks: 4}}\n"))


def test_thousands_of_problems_are_counted_not_told() -> None:
    texts = messages(TINY + "".join(f"rack_{i}: 1\n" for i in range(4000)))

    assert len(texts) == MAX_PROBLEMS + 1
    assert texts[-1] == "lab.yaml: and 3,950 more problems"


def test_problems_in_lists_have_their_index_and_line() -> None:
    text = """\
name: flaps
faults:
  - {kind: flap, link: a, at: 1s}
  - kind: flap
    link: a
    at: 11s
    ta: 3
"""
    assert messages(text, Drill) == [
        "lab.yaml:6: faults[1].at: expected a duration such as 50ms, 3s or 300us, at most 10s, "
        "got '11s'",
        "lab.yaml:7: faults[1].ta: unknown key",
    ]


def test_an_unknown_kind_in_a_list_names_the_kinds() -> None:
    text = "name: a\nfaults:\n  - kind: flop\n  - {link: a}\n  - flap\n"

    assert messages(text, Drill) == [
        "lab.yaml:3: faults[0].kind: expected flap or kill, got 'flop'",
        "lab.yaml:4: faults[1].kind: missing; expected flap or kill",
        "lab.yaml:5: faults[2]: expected a block of keys with kind: flap or kill, "
        "got the text 'flap'",
    ]


def test_a_check_across_keys_points_at_its_key() -> None:
    text = "name: a\nfaults:\n  - kind: flap\n    link: a\n    at: 0s\n"

    assert messages(text, Drill) == ["lab.yaml:5: faults[0].at: expected a start after 0"]


def test_a_union_gives_one_message() -> None:
    assert messages("name: a\nsize: many\n", Drill) == [
        "lab.yaml:2: size: expected a whole number or a duration such as 50ms, 3s or 300us, "
        "got 'many'"
    ]


def test_a_union_of_a_block_and_a_number_tells_what_is_wrong_in_the_block() -> None:
    text = "name: a\nexpect:\n  loss: {at_most: x}\n  time: x\n"

    assert messages(text, Drill) == [
        "lab.yaml:3: expect.loss.at_most: expected a number, got the text 'x'",
        "lab.yaml:4: expect.time: expected a block of keys (at_most) or a whole number, "
        "got the text 'x'",
    ]


def test_a_key_without_a_value_is_refused_where_none_would_be_accepted() -> None:
    text = "name: a\nfaults:\n  - {kind: flap, link: a, at: 1s, down_for: }\n"

    assert messages(text, Drill) == ["lab.yaml:3: faults[0].down_for: has no value"]


def test_a_good_file_of_another_model_is_read(tmp_path: Path) -> None:
    path = tmp_path / "drill.yaml"
    path.write_text("name: a\nfaults: [{kind: kill, node: rtsw1}]\nsize: 5ms\n")

    assert read_model(path, Drill) == Drill.model_validate(
        {"name": "a", "faults": [{"kind": "kill", "node": "rtsw1"}], "size": "5ms"}
    )


def paths_below(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every key of `model`, and of a key that it does not have."""
    for name, info in model.model_fields.items():
        yield (*path, name)
        inner = of_field(info).model
        if inner is not None:
            yield from paths_below(inner, (*path, name))
    yield (*path, "unknown")


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(0, 200),
    st.floats(),
    st.text(max_size=30),
    st.sampled_from(["400G", "3s", "10ms", "800KB", "shared", "clos", "l4", "numbered", "lab"]),
)
VALUES: st.SearchStrategy[object] = (
    SCALARS | st.lists(SCALARS, max_size=3) | st.just({}) | st.just({"x": 1})
)
CHANGES = st.dictionaries(st.sampled_from(list(paths_below(LabSpec))), VALUES, max_size=6)


def changed(changes: dict[tuple[str, ...], object]) -> dict[str, Any]:
    """A good spec with the values at some paths replaced."""
    data: dict[str, Any] = {"name": "lab", "fabric": {"racks": 4}}
    for path, value in changes.items():
        block = data
        for key in path[:-1]:
            if not isinstance(block.get(key), dict):
                block[key] = {}
            block = block[key]
        block[path[-1]] = value
    return data


@given(CHANGES)
def test_random_specs_are_valid_or_refused_and_nothing_else(
    changes: dict[tuple[str, ...], object],
) -> None:
    data = changed(changes)
    text = yaml.safe_dump(data)
    try:
        spec = validate(parse_source(text, "lab.yaml"), LabSpec)
    except SpecError as error:
        assert all(line.isprintable() for line in str(error).splitlines())
        assert all(problem.line or "empty" in problem.message for problem in error.problems)
    else:
        assert isinstance(spec, LabSpec)


@given(st.binary(max_size=300))
def test_random_files_are_valid_or_refused_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "random.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecError):
        load_spec(path)


@given(st.integers(0, len(TINY) - 1), st.characters(exclude_categories=["Cs"]))
def test_a_spec_with_one_character_changed_is_valid_or_refused(at: int, char: str) -> None:
    text = TINY[:at] + char + TINY[at + 1 :]
    try:
        validate(parse_source(text, "lab.yaml"), LabSpec)
    except SpecError as error:
        assert error.exit_code == 2


def test_a_spec_does_not_change() -> None:
    spec = validate(parse_source(TINY, "lab.yaml"), LabSpec)
    with pytest.raises(ValidationError):
        spec.name = "other"  # type: ignore[misc]


def test_one_character_is_not_counted_as_several() -> None:
    for least, words in ((1, "1 character"), (2, "2 characters")):
        declared = of_field(FieldInfo.from_annotation(Annotated[str, Field(min_length=least)]))
        assert phrase(declared) == f"text of at least {words}"
