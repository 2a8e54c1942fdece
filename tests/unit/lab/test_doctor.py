"""The doctor's reports, independent of this machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.lab import checks, doctor
from rocelab.lab.checks import Check
from rocelab.lab.doctor import KERNEL_FEATURES, MachineDiagnosis
from rocelab.lab.lab import as_it_runs
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.linux import probes
from rocelab.linux.probes import ProbeOutcome
from rocelab.linux.rights import CAPABILITIES, Capability, effective_capabilities

ALL = (1 << 41) - 1


def check(*, ok: bool, needed: bool) -> Check:
    return Check("thing", ok, needed, found="", purpose="", remedy="")


@given(st.lists(st.builds(check, ok=st.booleans(), needed=st.booleans())))
def test_a_lab_can_run_when_nothing_that_is_needed_is_missing(checks: list[Check]) -> None:
    missing = [one for one in checks if one.needed and not one.ok]
    assert MachineDiagnosis(tuple(checks)).can_run == (not missing)


def test_capabilities_are_read_from_the_effective_set() -> None:
    status = "Name:\tsh\nCapPrm:\t0000000000000fff\nCapEff:\t000001fffeffffff\nCapBnd:\t0\n"
    assert effective_capabilities(status) == 0x1FFFEFFFFFF


def test_a_status_without_capabilities_counts_as_none() -> None:
    assert effective_capabilities("Name:\tsh\n") == 0


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda capability: capability.name)
def test_a_missing_capability_is_the_only_one_named(capability: Capability) -> None:
    checks = doctor.capability_checks(ALL & ~(1 << capability.bit))
    assert [one.name for one in checks if not one.ok] == [capability.name]


def test_a_lab_runs_without_cap_sys_resource() -> None:
    checks = doctor.capability_checks(ALL & ~(1 << 24))
    assert MachineDiagnosis(tuple(checks)).can_run
    assert not all(one.ok for one in checks)


def test_every_kernel_feature_has_a_probe_and_every_probe_is_shown() -> None:
    assert {feature.probe for feature in KERNEL_FEATURES} == {"namespaces", *probes.PROBES}


def test_without_a_namespace_every_kernel_check_says_it_was_not_tried() -> None:
    checks = doctor.kernel_checks({"namespaces": ProbeOutcome(False, "needs root", denied=True)})
    assert checks[0].found == "needs root"
    assert {one.found for one in checks[1:]} == {"not tried: needs root"}
    assert {one.remedy for one in checks} == {
        "run it as root: sudo .venv/bin/rocelab doctor",
    }


def test_a_missing_feature_keeps_its_own_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = {feature.probe: ProbeOutcome(True, "present") for feature in KERNEL_FEATURES}
    outcomes["hash seed"] = ProbeOutcome(False, "not in this kernel (6.8.0)")
    seed = next(one for one in doctor.kernel_checks(outcomes) if not one.ok)
    assert seed.name == "multipath hash seed"
    assert not seed.needed
    assert "linux-generic-hwe-24.04" in seed.remedy
    assert "every lab runs as with `hashing: 0`" in seed.purpose
    monkeypatch.setattr("rocelab.linux.settings.seeds_supported", lambda: False)
    asked = load_spec(find_lab("tiny"))
    assert asked.hashing.seed != 0
    assert as_it_runs(asked).hashing.seed == 0


@pytest.mark.parametrize("name", doctor.LEAST)
def test_a_setting_of_the_machine_that_is_too_low_is_asked_for(name: str) -> None:
    enough = {setting: str(least) for setting, least in doctor.LEAST.items()}
    assert doctor.machine_settings_check(enough).ok
    low = doctor.machine_settings_check({**enough, name: "0"})
    assert not low.ok
    assert not low.needed
    assert low.found == f"low: {name} 0"
    assert low.remedy == f"sysctl -w net.{name.replace('/', '.')}={doctor.LEAST[name]}"


def test_settings_that_are_not_seen_from_here_are_not_asked_for() -> None:
    assert doctor.machine_settings_check({}).ok


def test_what_is_needed_has_a_purpose_and_a_remedy() -> None:
    for one in (*CAPABILITIES, *KERNEL_FEATURES):
        assert one.purpose
        assert one.remedy


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("bgpd version 8.4.4\nCopyright 1996-2005 Kunihiro Ishiguro, et al.\n", "8.4.4"),
        ("Debian clang version 14.0.6\n", "14.0.6"),
        ("ip utility, iproute2-6.1.0, libbpf 1.1.0\n", "6.1.0"),
        ("Usage: thing [OPTION]\n", "present"),
    ],
)
def test_the_version_is_the_first_number_a_program_prints(printed: str, version: str) -> None:
    assert checks.version_in(printed) == version


def test_a_program_that_is_not_there_is_missing_and_names_its_package() -> None:
    check = checks.program_check(("rocelab-no-such-program",), "frr", "nothing")
    assert not check.ok
    assert check.found == "missing"
    assert "Debian package frr" in check.remedy


def test_a_program_that_fails_is_not_there() -> None:
    assert checks.program_version(("false",)) is None
