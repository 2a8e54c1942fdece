"""Environment variables in topologies, as containerlab expands them and a shell would not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.base.errors import SpecError
from rocelab.labfile.topology import TopologyFile, topology_name
from rocelab.labfile.variables import UNSET, TooLongError, UnclosedError, expand

ENVIRONMENT = {"A": "aval", "EMPTY": "", "LONG_1": "x y", "_": "/bin/sh"}
"""`_` as a shell sets it."""


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$A, ${A} and ${LONG_1}", "aval, aval and x y"),
        ("$NONE ${NONE} ${EMPTY}", "$NONE $NONE $EMPTY"),
        ("${NONE:=x} ${NONE:-x} ${NONE-x} ${NONE=x}", "x x x x"),
        ("${EMPTY:=x} ${EMPTY:-x} ${EMPTY-x} ${EMPTY=x}", "x x $EMPTY $EMPTY"),
        ("${A:=x} ${A:-x} ${A-x} ${A=x}", "aval aval aval aval"),
        ("${A+x} ${EMPTY:+x} ${NONE+x}.", "x x ."),
        ("${NONE:=$A} ${NONE:-$OTHER}", "aval $OTHER"),
        ("${NONE:=quay.io/frrouting/frr:10.2}", "quay.io/frrouting/frr:10.2"),
        ("${NONE:=a-b=c+d} ${NONE:=}", "a-b=c+d $NONE"),
        ("$$A $${A} $$$A", "$A ${A} $aval"),
        ("$1 ${1} ${1A} $ 5$", "$1 ${1} ${1A} $ 5$"),
        ("$_ ${_} ${} ${-x}", "$_ ${_} ${} ${-x}"),
        ("${NONE:=${A}}", "{A}"),
        ("$A.QdM/$A-x", "aval.QdM/aval-x"),
        ("caf\u00e9 $A\nnext ${A}", "caf\u00e9 aval\nnext aval"),
    ],
)
def test_what_containerlab_makes_of_it(text: str, expanded: str) -> None:
    # Each was compared with github.com/hellt/envsubst 0.2.0 as containerlab 0.79 calls it.
    assert expand(text, ENVIRONMENT) == expanded


@pytest.mark.parametrize("text", ["a\n${A", "a\n${A:=x\n}", "a\n${", "a\n${A:-$"])
def test_an_expression_ends_on_its_line(text: str) -> None:
    with pytest.raises(UnclosedError) as caught:
        expand(text, ENVIRONMENT)
    assert caught.value.line == 2


def test_what_stands_for_an_unset_variable_is_seen() -> None:
    unset = UNSET.search(expand("image: ${FRR}", {}))
    assert unset is not None and unset[1] == "FRR"
    assert UNSET.search("$1 $$") is None


@pytest.mark.parametrize(
    "reference", ["$LONG", "${LONG}", "${LONG:-x}", "${NONE:-$LONG}", "${_$LONG$LONG}"]
)
def test_many_long_values_do_not_fill_the_memory(reference: str, tmp_path: Path) -> None:
    environment = {"LONG": "x" * 100_000}
    assert environment["LONG"] in expand(reference, environment)
    file = tmp_path / "x.clab.yml"
    file.write_text(f"name: {reference * 1000}\n")
    for read in (TopologyFile, topology_name):
        with pytest.raises((SpecError, TooLongError), match="its variables have more than"):
            read(file, environment)
