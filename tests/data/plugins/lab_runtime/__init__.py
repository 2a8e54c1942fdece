"""A runtime that makes namespaces as `netns` does, and notes what it made elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.progress import ProgressSink
from rocelab.lab.checks import Check
from rocelab.lab.providers.base import NodeProvider
from rocelab.lab.providers.netns import NetnsProvider
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles
from rocelab.routing.frr.kind import FrrMemory

NOTES = "ROCELAB_TEST_NOTES"


@dataclass(frozen=True, slots=True)
class NotedProvider(NetnsProvider):
    """Namespaces that are noted."""

    @property
    def kind(self) -> str:
        return "noted"

    def make_nodes(self, fabric: Fabric, files: LabFiles, progress: ProgressSink) -> None:
        Path(os.environ[NOTES], files.lab).write_text(f"{len(fabric.nodes)} nodes")
        NetnsProvider.make_nodes(self, fabric, files, progress)

    def remove(self, files: LabFiles) -> None:
        Path(os.environ[NOTES], files.lab).unlink(missing_ok=True)


class Noted:
    def provider(self, image: str | None, frr: Path | None, frr_memory: FrrMemory) -> NodeProvider:
        return NotedProvider(frr, frr_memory)

    def recorded(self) -> NodeProvider:
        return NotedProvider(None)

    def checks(self) -> Sequence[Check]:
        return [Check("notes", True, False, "a folder", "the runtime noted", "")]


NOTED = Noted()
