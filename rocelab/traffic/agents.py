"""Starts the agents in a lab's servers and exchanges messages with them.

Each agent gets its server's part of a run. One process forks them all; they end with the group,
with this process and, because they are in the lab's namespaces, with the lab.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any

from rocelab.agent.channel import Channel, ChannelClosedError, ChannelMessage, join
from rocelab.base.errors import MachineError
from rocelab.base.interruption import undone
from rocelab.linux import background
from rocelab.linux.closing import Holding

REPLY_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class AgentPart:
    """A server's part of a run: the setup message of its agent, and the frames with it."""

    fields: Mapping[str, Any]
    frames: tuple[bytes, ...]


class AgentHandle:
    """One agent, seen from here: its channel and its standard error."""

    def __init__(self, server: str, stream: socket.socket, errors: IO[bytes]) -> None:
        self.server = server
        self._channel = Channel(stream)
        self._errors = errors

    def fileno(self) -> int:
        return self._channel.fileno()

    def send(self, fields: Mapping[str, object], payload: bytes = b"") -> None:
        """Raises MachineError if the agent has ended."""
        try:
            self._channel.send(fields, payload)
        except ChannelClosedError as error:
            raise self._ended() from error

    def receive(self) -> ChannelMessage:
        """The next message. Raises MachineError if the agent has ended or does not answer."""
        try:
            return self._channel.receive()
        except ChannelClosedError as error:
            raise self._ended() from error
        except TimeoutError as error:
            raise MachineError(
                f"the traffic agent of {self.server} has not answered for {REPLY_TIMEOUT_S:.0f} s",
                hint="the machine may be short of CPU or memory",
            ) from error

    def answer(self, key: str) -> ChannelMessage:
        """The next message with this field; messages sent before it are dropped."""
        while True:
            message = self.receive()
            if key in message.fields:
                return message

    def _ended(self) -> MachineError:
        self._errors.seek(0)
        reason = (
            background.last_line(self._errors.read().decode(errors="replace"))
            or "something killed it"
        )
        return MachineError(
            f"the traffic agent of {self.server} ended: {reason}",
            hint="is the lab up, and no other traffic session running on it?",
        )


class AgentGroup(Holding):
    """The agents of a run, as a context: ready within it and gone after it."""

    def __init__(self, parts: Mapping[str, AgentPart]) -> None:
        self._parts = parts
        self.agents: list[AgentHandle] = []

    def _enter(self, stack: ExitStack) -> None:
        """Start every agent and wait until it is ready. Raises MachineError if one fails."""
        stack.callback(undone, "the traffic was stopped")
        self.agents = stack.enter_context(_forked_agents(list(self._parts)))
        for agent in self.agents:
            part = self._parts[agent.server]
            sizes, payload = join(part.frames)
            agent.send({**part.fields, "sizes": sizes}, payload)
        for agent in self.agents:
            agent.receive()

    def send_to_all(self, fields: Mapping[str, object]) -> None:
        """Send every agent the same message. Raises MachineError."""
        for agent in self.agents:
            agent.send(fields)

    def messages(self, timeout_s: float) -> Iterator[tuple[AgentHandle, ChannelMessage]]:
        """Messages from any agent as they arrive, until none arrives for `timeout_s`.

        Raises MachineError if an agent has ended.
        """
        with selectors.DefaultSelector() as selector:
            for agent in self.agents:
                selector.register(agent, selectors.EVENT_READ, agent)
            while ready := selector.select(timeout_s):
                for key, _ in ready:
                    yield key.data, key.data.receive()


@contextmanager
def _forked_agents(servers: Sequence[str]) -> Iterator[list[AgentHandle]]:
    """An agent for each server; all of them have ended when the block has."""
    with ExitStack() as files:
        agents, descriptors = [], []
        with ExitStack() as far_ends:
            for server in servers:
                near, far = map(files.enter_context, socket.socketpair())
                near.settimeout(REPLY_TIMEOUT_S)
                # Unlike a pipe, such a file cannot fill up and block the agent.
                errors = files.enter_context(os.fdopen(os.memfd_create("agent-stderr"), "w+b"))
                agents.append(AgentHandle(server, near, errors))
                far_ends.enter_context(far)
                descriptors.append((far.fileno(), errors.fileno()))
            # Without `site`: an agent needs this package and the standard library only.
            process = background.launch(
                "rocelab.agent.agent",
                *(f"{channel}:{errors}" for channel, errors in descriptors),
                stdin=subprocess.PIPE,
                errors=descriptors[0][1],
                pass_fds=list(chain.from_iterable(descriptors)),
                site=False,
            )
        with process:
            yield agents
