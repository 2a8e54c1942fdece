"""The machine that `--host` names, and its settings in ~/.ssh/config."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.errors import InputError
from rocelab.remote.address import Address, parse_address, read_config, resolve

HOME = Path("/home/me")
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True)


@given(
    host=NAMES | st.ip_addresses().map(str),
    user=st.none() | NAMES,
    port=st.none() | st.integers(1, 65535),
)
def test_an_address_reads_as_it_is_written(host: str, user: str | None, port: int | None) -> None:
    address = Address(host, user, port)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "@vm", "me@", "vm:", "vm:0", "vm:65536", "vm:ssh", "me@vm/x", "-oProxyCommand=x"),
        *("a b", "vm;reboot", "$(reboot)", "`reboot`", "a|b", "a&b", "vm\n", "a'b", "me;x@vm"),
    ],
)
def test_what_names_no_machine_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_address(text)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="password") as refused:
        parse_address("me:secret@vm")
    assert "secret" not in str(refused.value)


def config(text: str) -> paramiko.SSHConfig:
    return paramiko.SSHConfig.from_text(text)


def test_what_was_typed_wins_over_the_configuration() -> None:
    told = config("Host lab\n HostName 192.0.2.7\n User ops\n Port 2200\n")
    plain = resolve(parse_address("lab"), told, HOME)
    assert (plain.host, plain.user, plain.port) == ("192.0.2.7", "ops", 2200)
    typed = resolve(parse_address("me@lab:22"), told, HOME)
    assert (typed.host, typed.user, typed.port) == ("192.0.2.7", "me", 22)


def test_known_hosts_has_a_machine_by_its_name_port_or_alias() -> None:
    assert resolve(parse_address("vm"), config(""), HOME).known_as == "vm"
    assert resolve(parse_address("vm:2200"), config(""), HOME).known_as == "[vm]:2200"
    aliased = config("Host vm\n HostKeyAlias twin\n Port 2200\n")
    assert resolve(parse_address("vm"), aliased, HOME).known_as == "twin"


def test_keys_are_those_of_the_configuration_or_the_usual_ones() -> None:
    usual = resolve(parse_address("vm"), config(""), HOME).keys
    assert usual[0] == HOME / ".ssh/id_ed25519"
    told = config("Host vm\n IdentityFile /keys/lab\n IdentitiesOnly yes\n")
    destination = resolve(parse_address("vm"), told, HOME)
    assert destination.keys == (Path("/keys/lab"),)
    assert destination.only_these_keys


def test_jumps_and_commands_between_are_read() -> None:
    told = config("Host vm\n ProxyJump me@first:2222,second\nHost other\n ProxyCommand nc %h %p\n")
    jumps = resolve(parse_address("vm"), told, HOME).jumps
    assert jumps == (Address("first", "me", 2222), Address("second"))
    command = resolve(parse_address("other:99"), told, HOME).proxy_command
    assert command is not None
    assert command.startswith("nc other ")
    none = config("Host vm\n ProxyCommand none\n ProxyJump none\n")
    straight = resolve(parse_address("vm"), none, HOME)
    assert (straight.jumps, straight.proxy_command) == ((), None)


def test_a_configuration_that_is_not_valid_is_an_error_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "config"
    assert read_config(file).lookup("vm")["hostname"] == "vm"
    file.write_text("what is this\nHost\n=\n")
    with pytest.raises(InputError, match=str(file)):
        read_config(file)
    with pytest.raises(InputError, match="config"):
        resolve(parse_address("vm"), config("Host vm\n Port many\n"), HOME)
