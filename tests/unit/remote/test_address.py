"""The machine that `--host` names, and its settings in ~/.ssh/config."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.remote.address import (
    Destination,
    HostAddress,
    _configuration,
    parse_address,
    read_config,
    resolve,
)
from rocelab.remote.connection import connected

HOME = Path("/home/me")
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True)


@given(
    host=NAMES | st.ip_addresses().map(str),
    user=st.none() | NAMES,
    port=st.none() | st.integers(1, 65535),
)
def test_an_address_reads_as_it_is_written(host: str, user: str | None, port: int | None) -> None:
    address = HostAddress(host, user, port)
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
    configuration = config("Host lab\n HostName 192.0.2.7\n User ops\n Port 2200\n")
    plain = resolve(parse_address("lab"), configuration, HOME)
    assert (plain.host, plain.user, plain.port) == ("192.0.2.7", "ops", 2200)
    typed = resolve(parse_address("me@lab:22"), configuration, HOME)
    assert (typed.host, typed.user, typed.port) == ("192.0.2.7", "me", 22)


def test_known_hosts_has_a_machine_by_its_name_port_or_alias() -> None:
    assert resolve(parse_address("vm"), config(""), HOME).known_as == "vm"
    assert resolve(parse_address("vm:2200"), config(""), HOME).known_as == "[vm]:2200"
    aliased = config("Host vm\n HostKeyAlias twin\n Port 2200\n")
    assert resolve(parse_address("vm"), aliased, HOME).known_as == "twin"


def test_keys_are_those_of_the_configuration_or_the_usual_ones() -> None:
    usual = resolve(parse_address("vm"), config(""), HOME).keys
    assert usual[0] == HOME / ".ssh/id_ed25519"
    configuration = config("Host vm\n IdentityFile /keys/lab\n IdentitiesOnly yes\n")
    destination = resolve(parse_address("vm"), configuration, HOME)
    assert destination.keys == (Path("/keys/lab"),)
    assert destination.only_these_keys


def test_jumps_and_commands_between_are_read() -> None:
    configuration = config(
        "Host vm\n ProxyJump me@first:2222,second\nHost other\n ProxyCommand nc %h %p\n"
    )
    jumps = resolve(parse_address("vm"), configuration, HOME).jumps
    assert jumps == (HostAddress("first", "me", 2222), HostAddress("second"))
    command = resolve(parse_address("other:99"), configuration, HOME).proxy_command
    assert command is not None
    assert command.startswith("nc other ")
    none = config("Host vm\n ProxyCommand none\n ProxyJump none\n")
    straight = resolve(parse_address("vm"), none, HOME)
    assert (straight.jumps, straight.proxy_command) == ((), None)


def test_without_ssh_a_configuration_that_paramiko_cannot_read_is_an_error_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    file = tmp_path / "config"
    assert resolve(parse_address("vm"), read_config(file), HOME).host == "vm"
    for text, message in (
        ("what is this\nHost\n=\n", str(file)),
        ("Match final all\n Port 3\n", str(file)),
        ("Host a\nInclude other\n", f"{file}:2: Include needs OpenSSH's client"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=re.escape(message)) as error:
            read_config(file)
        assert error.value.hint and "openssh-client" in error.value.hint
    with pytest.raises(InputError, match="config"):
        resolve(parse_address("vm"), config("Host vm\n Port many\n"), HOME)
    with pytest.raises(InputError, match="can be no machine's name"):
        resolve(parse_address("vm"), config(f"Host vm\n HostName {'a' * 64}\n"), HOME)


def told(home: Path, text: str, typed: str = "vm", **included: str) -> Destination:
    """What ssh says of `typed` with this ~/.ssh/config."""
    (home / ".ssh").mkdir(exist_ok=True)
    for name, content in {"config": text, **included}.items():
        (home / ".ssh" / name).write_text(content)
    return resolve(parse_address(typed), read_config(home / ".ssh/config"), home)


with_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no OpenSSH client")


@with_ssh
def test_the_configuration_is_read_as_ssh_reads_it(tmp_path: Path) -> None:
    both = "Match final all\n Port 3\nHost vm\n HostName 192.0.2.7\n"
    assert (told(tmp_path, both).host, told(tmp_path, both).port) == ("192.0.2.7", 3)
    assert told(tmp_path, both, "me@vm:5").port == 5
    assert told(tmp_path, "Match host=vm\n User ops\n").user == "ops"
    assert told(tmp_path, 'Match host vm exec "true"\n Port 9\n').port == 9
    assert told(tmp_path, "Match user me\n Port 9\n", "me@vm").port == 9
    for path in ("extra", "~/.ssh/extra", str(tmp_path / ".ssh/extra"), "ex*"):
        assert told(tmp_path, f"Include {path}\n", extra="Host vm\n Port 4\n").port == 4
    jumps = told(tmp_path, "Host vm\n ProxyJump me@first:2222,ssh://second\n").jumps
    assert jumps == (HostAddress("first", "me", 2222), HostAddress("second"))
    assert told(tmp_path, "Host vm\n ProxyJump none\n").jumps == ()


@with_ssh
def test_tokens_are_filled_in_names_of_jump_hosts(tmp_path: Path) -> None:
    """OpenSSH makes a ProxyCommand of them, which takes tokens (openssh-portable#305)."""
    text = "Host vm\n HostName h.example\n User me\n ProxyJump %r@jump-%h:2200,%n.gw\n"
    jumps = told(tmp_path, text).jumps
    assert [str(jump) for jump in jumps] == ["me@jump-h.example:2200", "vm.gw"]


@with_ssh
def test_tokens_and_places_of_the_home_are_filled_in(tmp_path: Path) -> None:
    text = "Host vm\n HostName h.example\n IdentityFile %d/keys/%n-%h\n ProxyCommand nc %h %p %%\n"
    destination = told(tmp_path, text, "vm:99")
    assert destination.keys == (tmp_path / "keys/vm-h.example",)
    assert destination.proxy_command == "nc h.example 99 %"
    assert destination.known_hosts[0] == tmp_path / ".ssh/known_hosts"
    answer = told(tmp_path, "UserKnownHostsFile /known/mine\nHostKeyAlias twin\n")
    assert (answer.known_hosts[0], answer.known_as) == (Path("/known/mine"), "twin")


def test_without_a_configuration_that_of_another_home_is_not_read(tmp_path: Path) -> None:
    assert _configuration(tmp_path / "config").options == ("-F", "none")


@with_ssh
def test_what_ssh_refuses_is_refused_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="config: line 2: Bad configuration option: bogus"):
        told(tmp_path, "Host vm\n Bogus 1\n")
    with pytest.raises(InputError, match="ProxyUseFdpass is not supported"):
        told(tmp_path, "Host vm\n ProxyCommand x\n ProxyUseFdpass yes\n")


@pytest.mark.parametrize(
    "text",
    [
        "Host *\n HostName 127.0.0.1\n ProxyJump bastion\n",
        "Host vm\n ProxyJump a\nHost a\n ProxyJump b\nHost b\n ProxyJump a\n",
        "Host vm\n ProxyJump vm,a\nHost vm a\n ProxyJump a,vm\n",
    ],
)
@pytest.mark.parametrize("has_ssh", [pytest.param(True, marks=with_ssh), False])
def test_jump_hosts_in_a_circle_are_refused(
    text: str, has_ssh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_ssh:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    with (
        pytest.raises(InputError, match="loop via"),
        connected(told(tmp_path, text), tmp_path),
    ):
        pytest.fail("connected")


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("ssh://u@127.0.0.1:2", HostAddress("127.0.0.1", "u", 2)),
        ("ssh://vm", HostAddress("vm")),
        ("SSH://me@vm/", HostAddress("vm", "me")),
        ("ssh://[::1]:22", HostAddress("::1", None, 22)),
        ("ssh://me@[fe80::1%eth0]", HostAddress("fe80::1%eth0", "me")),
    ],
)
def test_an_address_may_be_a_uri(uri: str, address: HostAddress) -> None:
    assert parse_address(uri) == address


@pytest.mark.parametrize(
    "text", ["-oProxyCommand=id", "u@-oProxyCommand=id", "-u@vm", "ssh://-x", "ssh://u@-x:2"]
)
def test_an_address_is_no_option(text: str) -> None:
    with pytest.raises(InputError, match="names no machine"):
        parse_address(text)


@pytest.mark.parametrize("uri", ["ssh://u:pw@vm", "ssh://u:pw@[::1]:2", "u:pw@vm:22"])
def test_a_password_in_a_uri_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(InputError, match="password") as refused:
        parse_address(uri)
    assert "pw" not in refused.value.message


@pytest.mark.parametrize(
    "uri", ["ssh://", "ssh:///vm", "ssh://vm/x", "http://u@vm:2", "scp://vm:2", "ssh://vm:0"]
)
def test_another_uri_names_no_machine(uri: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_address(uri)
    assert "password" not in refused.value.message
