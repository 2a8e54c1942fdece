"""Moves a thread into a network namespace that looks like a machine: with a host name and an
/etc/hosts of its own, in a file system that is otherwise this machine's."""

from __future__ import annotations

from pathlib import Path

from rocelab.linux import mounts, namespaces

HOSTS = Path("/etc/hosts")


def enter(netns: Path, name: str, view: Path, hosts: Path) -> None:
    """Move the calling thread, which must end there, into a network namespace with the host name
    `name`, and into the mount namespace kept at `view`, if there is one, with `hosts` as its
    /etc/hosts, in the same working directory. Raises OSError."""
    namespaces.enter(netns)
    namespaces.name_host(name)
    if view.exists():
        mounts.enter_here(view)
        # A program that replaces the machine's /etc/hosts thereby unmounts what is on it, in every
        # namespace.
        show_hosts(hosts)


def show_hosts(hosts: Path) -> None:
    """Let the calling thread's mount namespace have the file `hosts` as its /etc/hosts, if it has
    one. Raises OSError."""
    if HOSTS.exists():
        mounts.cover(HOSTS, hosts)
