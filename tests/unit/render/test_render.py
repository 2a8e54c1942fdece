"""Rendered FRR configurations, against golden files. `RECORD=1 pytest` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocelab.base.errors import InputError
from rocelab.lab.lab import Lab
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.render.files import MARKER, write_rendered
from rocelab.routing.frr.configuration import daemons, frr_configuration

GOLDEN = Path(__file__).parents[2] / "golden"


def fabric(**extra: object) -> Fabric:
    three_tiers = {"zones": 2, "racks": 2, "spines": 2, "atsws": 1}
    return plan(LabSpec.model_validate({"name": "golden", "fabric": three_tiers, **extra}))


@pytest.mark.parametrize("node", ["z1-rtsw1", "z1-ctsw1", "atsw1"])
@pytest.mark.parametrize(
    ("variant", "extra"),
    [
        ("numbered", {}),
        (
            "unnumbered",
            {
                "routing": {
                    "numbering": "unnumbered",
                    "bfd": {"interval": "100ms", "multiplier": 3},
                    "graceful_restart": True,
                }
            },
        ),
        ("valleys", {"routing": {"valley_free": False}}),
        ("ipv6", {"addresses": {"family": "ipv6"}}),
        ("dual", {"addresses": {"family": "dual"}}),
    ],
)
def test_a_switch_s_configuration_is_as_recorded(
    node: str, variant: str, extra: dict[str, object]
) -> None:
    assert_as_recorded(fabric(**extra), node, f"{variant}-{node}")


@pytest.mark.parametrize("node", ["s1-tor1a", "p1-agg1"])
def test_a_switch_of_nics_with_two_ports_is_configured_as_recorded(node: str) -> None:
    assert_as_recorded(Lab.planned("hpn-small").fabric, node, f"hpn-{node}")


def assert_as_recorded(planned: Fabric, node: str, name: str) -> None:
    text = "".join(
        f"# {daemon}.conf\n{text}"
        for daemon, text in frr_configuration(planned, planned.node(node)).items()
    )
    golden = GOLDEN / f"{name}.conf"
    if os.environ.get("RECORD"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_bfdd_runs_only_where_bfd_is_asked_for() -> None:
    assert daemons(fabric()) == ("zebra", "bgpd")
    assert daemons(fabric(routing={"bfd": {}})) == ("zebra", "bfdd", "bgpd")


@pytest.mark.parametrize(
    ("racks", "extra", "waiting"),
    [
        (128, {}, {"rtsw1"}),
        (129, {}, {"ctsw1"}),
        (2, {"routing": {"numbering": "unnumbered"}}, {"ctsw1"}),
    ],
)
def test_upper_ends_open_the_sessions_of_small_fabrics_with_addresses(
    racks: int, extra: dict[str, object], waiting: set[str]
) -> None:
    spec = {"name": "sized", "fabric": {"kind": "clos", "racks": racks, "spines": 2}, **extra}
    planned = plan(LabSpec.model_validate(spec))
    passive = {
        name
        for name in ("rtsw1", "ctsw1")
        if " passive\n" in frr_configuration(planned, planned.node(name))["bgpd"]
    }
    assert passive == waiting


def test_a_server_has_no_configuration() -> None:
    planned = fabric()
    with pytest.raises(ValueError, match="runs no routing daemon"):
        frr_configuration(planned, planned.servers[0])


def test_a_render_goes_through_no_link_that_the_folders_user_put_there(tmp_path: Path) -> None:
    made = fabric()
    secret, roots, folder = tmp_path / "secret", tmp_path / "roots", tmp_path / "out"
    secret.write_text("of root")
    roots.mkdir()
    write_rendered(made, folder)
    (folder / "atsw1/bgpd.conf").unlink()
    (folder / "atsw1/bgpd.conf").symlink_to(secret)
    write_rendered(made, folder, overwrite=True)
    assert (folder / "atsw1/bgpd.conf").read_text() == frr_configuration(made, made.node("atsw1"))[
        "bgpd"
    ]
    (folder / "atsw1").rename(folder / "aside")
    (folder / "atsw1").symlink_to(roots)
    with pytest.raises(InputError, match="cannot write to"):
        write_rendered(made, folder, overwrite=True)
    (folder / MARKER).unlink()
    (folder / MARKER).symlink_to(secret)
    with pytest.raises(InputError, match="it is a link"):
        write_rendered(made, folder, overwrite=True)
    assert secret.read_text() == "of root"
    assert list(roots.iterdir()) == []
