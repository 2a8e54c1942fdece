"""Interfaces and their counters, also where somebody else chose the names."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.linux import links

COUNTERS = b"".join(b" %d" % number for number in range(1, 17))
HEAD = b"Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n"


@pytest.mark.parametrize("name", [b"a\x1cb", b"\xff", b"\xc2\x85", b"eth1"])
def test_an_interface_may_have_any_name(name: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    written = HEAD + b"    lo:" + COUNTERS + b"\n" + name + b":" + COUNTERS + b"\n"

    def read_text(_: Path, errors: str = "strict") -> str:
        return written.decode(errors=errors)

    monkeypatch.setattr(Path, "read_text", read_text)
    counters = links.read_counters()
    assert counters.keys() == {"lo", name.decode(errors="replace")}
    assert {port.rx_bytes for port in counters.values()} == {1}
