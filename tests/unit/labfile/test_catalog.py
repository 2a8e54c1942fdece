"""The labs that ship, how a command finds one, and the two references of every key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from rocelab.base.errors import InputError
from rocelab.labfile.catalog import LABS, find_lab, shipped_names
from rocelab.labfile.fields import default_text, of_field
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.labfile.schema import DIALECT, lab_schema
from tests.helpers.labs import planned

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = "\n".join((DOCS / page).read_text() for page in ("spec.md", "hosts.md"))
"""Of all keys: those of a type of server are also a file's, which has a page of its own."""


@dataclass(frozen=True)
class Key:
    """A key of the spec: its block and, if the block has kinds, the kind."""

    block: tuple[str, ...]
    kind: str | None
    name: str

    def __str__(self) -> str:
        return ".".join((*self.block, self.name)) + (f" of {self.kind}" if self.kind else "")

    @property
    def heading(self) -> str:
        """The heading of its section in the reference."""
        block = ".".join(self.block)
        return f"`{block}: {self.kind}`" if self.kind else f"`{block}`" if block else "Top level"

    def part_of(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The key's part of the schema."""
        part = schema
        for name in self.block:
            part = properties_of(schema, part, None if name != self.block[-1] else self.kind)[name]
        return properties_of(schema, part, self.kind)[self.name]


def fields_below(
    model: type[BaseModel], block: tuple[str, ...] = (), kind: str | None = None
) -> Iterator[tuple[Key, Any]]:
    """Every key of `model` and of the blocks in it, of each kind, with its field."""
    for name, info in model.model_fields.items():
        yield Key(block, kind, name), info
        declared = of_field(info)
        if declared.model is not None:
            yield from fields_below(declared.model, (*block, name))
        for word, inner in declared.kinds[1].items() if declared.kinds else ():
            if inner.model is not None:
                yield from fields_below(inner.model, (*block, name), word)


SCHEMA = lab_schema()
FIELDS = dict(fields_below(LabSpec))
OF_OTHER_KINDS = {key for key in FIELDS if key.kind not in (None, "clos", "ecmp")}


def properties_of(
    schema: dict[str, Any], part: dict[str, Any], kind: str | None
) -> dict[str, dict[str, Any]]:
    """The properties of a block's part of the schema, for `kind` if it has kinds."""
    if "$ref" in part:
        return properties_of(schema, schema["$defs"][part["$ref"].rpartition("/")[2]], kind)
    forms = [properties_of(schema, form, kind) for key in FORMS for form in part.get(key, ())]
    fitting = [form for form in forms if kind in (None, form.get("kind", {}).get("const"))]
    return next(filter(None, fitting), part.get("properties", {}))


FORMS = ("anyOf", "oneOf")


def accepts(schema: dict[str, Any], part: dict[str, Any], value: Any) -> bool:
    """A small validator: the words of JSON Schema that the lab schema uses, and no others."""
    known = {"$ref", "anyOf", "type", "enum", "const", "pattern", "maxLength", "minimum"}
    known |= {"maximum", "exclusiveMinimum", "properties", "required", "additionalProperties"}
    known |= {"items", "minItems", "maxItems", "oneOf"}
    assert set(part) <= known | {"title", "description", "default", "examples", "$schema", "$defs"}
    kinds: dict[str, Any] = {"string": str, "object": dict, "array": list, "boolean": bool}
    kinds |= {"integer": int, "number": int | float}
    if "$ref" in part and not accepts(
        schema, schema["$defs"][part["$ref"].rpartition("/")[2]], value
    ):
        return False
    if "anyOf" in part and not any(accepts(schema, form, value) for form in part["anyOf"]):
        return False
    if "oneOf" in part and sum(accepts(schema, form, value) for form in part["oneOf"]) != 1:
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
        fits = part.get("minItems", 0) <= len(value) <= part.get("maxItems", len(value))
        return fits and all(accepts(schema, part["items"], inner) for inner in value)
    return (
        value in part.get("enum", [value])
        and value == part.get("const", value)
        and ("pattern" not in part or re.search(part["pattern"], value) is not None)
        and ("maxLength" not in part or len(value) <= part["maxLength"])
        and ("minimum" not in part or value >= part["minimum"])
        and ("maximum" not in part or value <= part["maximum"])
        and ("exclusiveMinimum" not in part or value > part["exclusiveMinimum"])
    )


def test_the_catalog_has_the_labs_that_the_documents_speak_of() -> None:
    fabrics = (DOCS / "fabrics.md").read_text()
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", fabrics, re.MULTILINE)

    assert sorted(listed) == list(shipped_names(LABS))


@pytest.mark.parametrize("name", shipped_names(LABS))
def test_a_lab_of_the_catalog_is_valid_and_has_the_name_of_its_file(name: str) -> None:
    path = find_lab(name)

    assert load_spec(path).name == name
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("name", shipped_names(LABS))
def test_the_schema_accepts_every_lab_of_the_catalog(name: str) -> None:
    assert accepts(SCHEMA, SCHEMA, yaml.safe_load(find_lab(name).read_text()))


def test_the_lab_of_32k_gpus_has_the_published_numbers() -> None:
    fabric = planned("meta-32k")

    nics = [link for link in fabric.links if not fabric.node(link.a.node).is_switch]
    assert len(nics) == 32_256
    assert (len(fabric.downlinks("z1-ctsw1")), len(fabric.uplinks("z1-ctsw1"))) == (252, 36)
    assert (len(fabric.downlinks("z1-rtsw1")), len(fabric.uplinks("z1-rtsw1"))) == (16, 18)
    assert len(fabric.downlinks("atsw1")) == 288


def test_the_lab_to_copy_has_every_key_of_its_kind_and_the_defaults() -> None:
    data = yaml.safe_load(find_lab("zone-small").read_text())
    left_out = {key for key in set(FIELDS) - OF_OTHER_KINDS if not _holds(data, key)}

    assert {str(key) for key in left_out} == {
        *("routing.bfd.interval", "routing.bfd.multiplier", "scheme.kind of ecmp", "queues.pfc"),
        *("links.delay", "queues.profile", "queues.roles", "queues.links"),
        *(f"routing.{key}" for key in ("policy", "templates", "config", "daemons", "expect")),
        *(str(key) for key in FIELDS if key.block[:2] in OWN),
        *(
            str(key)
            for key in FIELDS
            if {*key.block, key.name} & {"overrides", "addresses", "host_model", "tenants"}
        ),
        *(str(key) for key in FIELDS if key.block[:2] == ("queues", "pfc")),
    }
    spec = load_spec(find_lab("zone-small"))
    minimal = LabSpec.model_validate(
        {
            "name": "zone-small",
            "fabric": {"spines": 4, "links_per_pair": 2, "servers_per_rack": 2},
        }
    )
    assert spec == minimal


OWN = {("routing", block) for block in ("templates", "config", "expect")}
"""The blocks of a configuration of the user's own, which this lab does not have."""


def _holds(data: Any, key: Key) -> bool:
    for name in key.block:
        data = data.get(name) if isinstance(data, dict) else None
    return isinstance(data, dict) and key.name in data


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

    assert find_lab("tiny").parent.name == "labs"


def test_an_unknown_lab_names_the_nearest_and_what_lists_them() -> None:
    with pytest.raises(InputError) as caught:
        find_lab("zone_small")

    assert caught.value.exit_code == 2
    assert "there is no lab 'zone_small'" in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("did you mean zone-small? ")
    assert "`rocelab labs` lists the names" in caught.value.hint


def test_a_folder_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    for text in (".", "mine"):
        with pytest.raises(InputError, match=f"no lab '{text}', and the path is a folder"):
            find_lab(text)


@pytest.mark.parametrize("text", ["", ".", "x" * 5000, "a\0b", "a\x1b[31m", "$(id)"])
def test_a_lab_of_any_characters_is_refused_safely(text: str) -> None:
    with pytest.raises(InputError) as caught:
        find_lab(text)
    assert all(line.isprintable() for line in str(caught.value).splitlines())


@pytest.mark.parametrize("key", FIELDS, ids=str)
def test_the_schema_has_every_key_with_a_title_and_a_description(key: Key) -> None:
    part = key.part_of(SCHEMA)

    assert part["title"] == key.name
    assert part["description"]
    assert not part.keys() & {"ge", "gt", "le", "lt"}, "words of pydantic, not of JSON Schema"


@pytest.mark.parametrize("key", FIELDS, ids=str)
def test_a_default_in_the_schema_is_itself_valid(key: Key) -> None:
    part = key.part_of(SCHEMA)

    assert "default" not in part or accepts(SCHEMA, part, part["default"])


def test_the_schema_is_json_of_its_dialect() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"] == DIALECT
    assert SCHEMA["required"] == ["name"]
    assert SCHEMA["anyOf"] == [{"required": ["fabric"]}, {"required": ["networks"]}]


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("hashing", "shared", "sharde"),
        ("hashing", 7, -1),
        ("hashing", {"seed": 7, "policy": "l3"}, {"sed": 7}),
        ("routing", {"bfd": True}, {"bfd": 300}),
        ("routing", {"bfd": {"interval": "100ms"}}, {"bfd": {"interval": 100}}),
        ("links", {"rate": "400G"}, {"rate": "400GB"}),
        ("fabric", {"kind": "rail", "rails": 4}, {"rails": 4}),
        ("fabric", {"kind": "fat-tree", "k": 6}, {"kind": "fat-tree", "racks": 6}),
        ("fabric", {"racks": 4}, {"kind": "tree"}),
        ("scheme", "spray", "sprey"),
        ("scheme", {"kind": "flowlet", "gap": "1ms"}, {"kind": "spray", "gap": "1ms"}),
        ("scheme", {"kind": "te", "engine": "lp"}, {"kind": "te", "engine": "tea"}),
        ("name", "lab", "Lab"),
        ("dilation", 1.5, 0),
    ],
)
def test_the_schema_accepts_what_the_models_accept(key: str, good: Any, bad: Any) -> None:
    spec = {"name": "lab", "fabric": {"racks": 4}}

    assert accepts(SCHEMA, SCHEMA, {**spec, key: good})
    assert not accepts(SCHEMA, SCHEMA, {**spec, key: bad})
    LabSpec.model_validate({**spec, key: good})
    with pytest.raises(ValueError, match=key):
        LabSpec.model_validate({**spec, key: bad})


@pytest.mark.parametrize("key", FIELDS, ids=str)
def test_the_reference_has_every_key_with_its_default_and_limits(key: Key) -> None:
    section = REFERENCE.partition(f"# {key.heading}\n")[2].partition("\n#")[0]
    (row,) = (line for line in section.splitlines() if line.startswith(f"| `{key.name}` |"))
    _, _, _, default, limits, *_ = (cell.strip() for cell in row.split("|"))

    written = default_text(FIELDS[key])
    assert written is None or default == f"`{written}`"
    part = key.part_of(SCHEMA)
    for limit in ("minimum", "maximum"):
        assert limit not in part or str(part[limit]) in limits.replace(",", "").split()
    said = re.search(r", (?:from )?(\S+) to (\S+)$", part["description"])
    assert not said or limits.startswith(f"{said[1]} to {said[2]}")
