"""A Docker engine for all tests of containerlab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocelab.base.progress import no_progress
from rocelab.lab.engine import ContainerEngine
from rocelab.lab.image import built_image
from tests.helpers.engine import docker_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[ContainerEngine]:
    with docker_engine() as running:
        yield running


@pytest.fixture(scope="session")
def image(engine: ContainerEngine) -> str:
    """The image that `rocelab image build` makes."""
    return built_image(engine, no_progress)
