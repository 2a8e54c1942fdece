"""The KPIs by name, those that are not registered too."""

from __future__ import annotations

from rocelab.results.kpis import KPIS, format_kpi, kpis_of


def test_a_kpi_whose_package_is_gone_is_known_by_its_name_alone() -> None:
    assert "flows_sent" not in KPIS
    assert KPIS["flows_sent"].meaning == "of a package that is not installed here"
    assert format_kpi("flows_sent", 3) == "3 (unit unknown)"
    names = [kpi.name for kpi in kpis_of(["flows_sent", "lost_packets", "restored", "restored"])]
    assert names == ["restored", "lost_packets", "flows_sent"]
