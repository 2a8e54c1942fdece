"""The labs that ship, how a command finds one, and the two references of every key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from labs.errors import InputError
from labs.plan.build import build_fabric
from labs.spec.catalog import catalog_names, find_lab
from labs.spec.fields import default_text, of_field
from labs.spec.load import load_spec
from labs.spec.model import LabSpec
from labs.spec.schema import DIALECT, lab_schema

DOCS = Path(__file__).parents[2] / "docs" / "spec.md"


def fields_below(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of `model` as a dotted path, with its field."""
    for name, info in model.model_fields.items():
        yield path + name, info
        inner = of_field(info).model
        if inner is not None:
            yield from fields_below(inner, f"{path}{name}.")


FIELDS = dict(fields_below(LabSpec))


def resolve(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """What a part of the schema refers to: the object form where there are several."""
    if "$ref" in part:
        return resolve(schema, schema["$defs"][part["$ref"].rpartition("/")[2]])
    for each in part.get("anyOf", []):
        if "properties" in resolve(schema, each):
            return resolve(schema, each)
    return part


def accepts(schema: dict[str, Any], part: dict[str, Any], value: Any) -> bool:
    """A small validator: the words of JSON Schema that the lab schema uses, and no others."""
    known = {"$ref", "anyOf", "type", "enum", "const", "pattern", "maxLength", "minimum"}
    known |= {"maximum", "exclusiveMinimum", "properties", "required", "additionalProperties"}
    known |= {"items", "maxItems"}
    assert set(part) <= known | {"title", "description", "default", "examples", "$schema", "$defs"}
    kinds = {"string": str, "object": dict, "boolean": bool, "integer": int, "number": int | float}
    kinds["array"] = list
    if "$ref" in part and not accepts(
        schema, schema["$defs"][part["$ref"].rpartition("/")[2]], value
    ):
        return False
    if "anyOf" in part and not any(accepts(schema, each, value) for each in part["anyOf"]):
        return False
    if "type" in part and (
        not isinstance(value, kinds[part["type"]])
        or (isinstance(value, bool) and part["type"] != "boolean")
    ):
        return False
    if isinstance(value, dict) and "properties" in part:
        return set(part.get("required", [])) <= set(value) <= set(part["properties"]) and all(
            accepts(schema, part["properties"][key], inner) for key, inner in value.items()
        )
    if isinstance(value, list) and "items" in part:
        return len(value) <= part.get("maxItems", len(value)) and all(
            accepts(schema, part["items"], inner) for inner in value
        )
    return (
        value in part.get("enum", [value])
        and value == part.get("const", value)
        and ("pattern" not in part or re.search(part["pattern"], value) is not None)
        and ("maxLength" not in part or len(value) <= part["maxLength"])
        and ("minimum" not in part or value >= part["minimum"])
        and ("maximum" not in part or value <= part["maximum"])
        and ("exclusiveMinimum" not in part or value > part["exclusiveMinimum"])
    )


def test_the_catalog_has_the_labs_that_the_kit_speaks_of() -> None:
    assert catalog_names() == (
        "bench-16x4",
        "bfd",
        "dcqcn-100g",
        "four-ports",
        "meta-32k",
        "tiny",
        "two-leaves",
        "unnumbered",
        "zone-252x18",
        "zone-small",
        "zones-small",
    )


@pytest.mark.parametrize("name", catalog_names())
def test_a_lab_of_the_catalog_is_valid_and_has_the_name_of_its_file(name: str) -> None:
    path = find_lab(name)

    assert load_spec(path).name == name
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("name", catalog_names())
def test_the_schema_accepts_every_lab_of_the_catalog(name: str) -> None:
    schema = lab_schema()
    assert accepts(schema, schema, yaml.safe_load(find_lab(name).read_text()))


def test_the_lab_of_32k_gpus_has_the_published_numbers() -> None:
    spec = load_spec(find_lab("meta-32k"))
    fabric = build_fabric(spec)

    nics = [link for link in fabric.links if not fabric.node(link.a.node).is_switch]
    assert len(nics) == 32_256
    assert (len(fabric.downlinks("z1-ctsw1")), len(fabric.uplinks("z1-ctsw1"))) == (252, 36)
    assert (len(fabric.downlinks("z1-rtsw1")), len(fabric.uplinks("z1-rtsw1"))) == (16, 18)
    assert len(fabric.downlinks("atsw1")) == 288


def test_the_lab_to_copy_has_every_key_and_the_defaults() -> None:
    data = yaml.safe_load(find_lab("zone-small").read_text())

    assert set(FIELDS) - _paths(data) == {"routing.bfd.interval", "routing.bfd.multiplier"}
    spec = load_spec(find_lab("zone-small"))
    minimal = LabSpec.model_validate(
        {
            "name": "zone-small",
            "fabric": {"spines": 4, "links_per_pair": 2, "servers_per_rack": 2},
        }
    )
    assert spec == minimal


def _paths(data: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, value in data.items():
        found.add(prefix + key)
        if isinstance(value, dict):
            found |= _paths(value, f"{prefix}{key}.")
    return found


@pytest.mark.parametrize("text", ["./zone-small", "no/such/lab", "mine.yaml", "mine.yml"])
def test_text_that_looks_like_a_path_is_a_path(text: str) -> None:
    assert find_lab(text) == Path(text)


def test_a_file_that_is_there_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("name: mine\n")

    assert find_lab("mine") == Path("mine")


def test_a_catalog_name_is_the_catalog_s_even_beside_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").write_text("name: mine\n")

    assert find_lab("tiny").parent.name == "catalog"


def test_an_unknown_lab_names_the_catalog_and_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        find_lab("zone_small")

    assert caught.value.exit_code == 2
    assert "there is no lab 'zone_small'" in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("did you mean zone-small? ")
    assert all(name in caught.value.hint for name in catalog_names())


@pytest.mark.parametrize("text", ["", ".", "x" * 5000, "a\0b", "a\x1b[31m", "$(id)"])
def test_a_lab_of_any_characters_is_refused_safely(text: str) -> None:
    with pytest.raises(InputError) as caught:
        find_lab(text)
    assert all(line.isprintable() for line in str(caught.value).splitlines())


@pytest.mark.parametrize("path", FIELDS)
def test_the_schema_has_every_key_with_a_title_and_a_description(path: str) -> None:
    schema = lab_schema()
    part = schema
    for key in path.split("."):
        part = resolve(schema, part)["properties"][key]
        assert part["title"] == key
        assert part["description"]


@pytest.mark.parametrize("path", FIELDS)
def test_a_default_in_the_schema_is_itself_valid(path: str) -> None:
    schema = lab_schema()
    part = schema
    for key in path.split("."):
        part = resolve(schema, part)["properties"][key]
    assert "default" not in part or accepts(schema, part, part["default"])


def test_the_schema_is_json_of_its_dialect() -> None:
    schema = lab_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"] == DIALECT
    assert schema["required"] == ["name", "fabric"]


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("hashing", "shared", "sharde"),
        ("hashing", 7, -1),
        ("hashing", {"seed": 7, "policy": "l3"}, {"sed": 7}),
        ("routing", {"bfd": True}, {"bfd": 300}),
        ("routing", {"bfd": {"interval": "100ms"}}, {"bfd": {"interval": 100}}),
        ("links", {"rate": "400G"}, {"rate": "400GB"}),
        ("name", "lab", "Lab"),
        ("dilation", 1.5, 0),
    ],
)
def test_the_schema_accepts_what_the_models_accept(key: str, good: Any, bad: Any) -> None:
    schema = lab_schema()
    spec = {"name": "lab", "fabric": {"racks": 4}}

    assert accepts(schema, schema, {**spec, key: good})
    assert not accepts(schema, schema, {**spec, key: bad})
    LabSpec.model_validate({**spec, key: good})
    with pytest.raises(ValueError, match=key):
        LabSpec.model_validate({**spec, key: bad})


@pytest.mark.parametrize("path", FIELDS)
def test_the_reference_has_every_key_with_its_default_and_limits(path: str) -> None:
    block, _, key = path.rpartition(".")
    heading = f"# `{block}`" if block else "# Top level"
    section = DOCS.read_text().partition(f"{heading}\n")[2].partition("\n#")[0]
    (row,) = (line for line in section.splitlines() if line.startswith(f"| `{key}` |"))
    _, _, _, default, limits, *_ = (cell.strip() for cell in row.split("|"))

    written = default_text(FIELDS[path])
    assert written is None or default == f"`{written}`"
    schema = lab_schema()
    part = schema
    for each in path.split("."):
        part = resolve(schema, part)["properties"][each]
    for limit in ("minimum", "maximum"):
        assert limit not in part or str(part[limit]) in limits.replace(",", "").split()
    said = re.search(r", (?:from )?(\S+) to (\S+)$", part["description"])
    assert not said or limits.startswith(f"{said[1]} to {said[2]}")
