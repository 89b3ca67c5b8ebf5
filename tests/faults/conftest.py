"""A node whose daemon and executables are supervised, and the matrix that is printed when all is over."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.chaos.syscall_supervisor import Supervisor
from simnode.node import Node
from tests.faults import table
from tests.faults.ground import Ground
from tests.faults.table import Row


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with (
        Supervisor(Path("/run/simnode/supervisor.sock")) as supervisor,
        Node(Path(os.environ["RAILNET_CNI_PLUGINS"])) as node,
    ):
        yield Ground(node, supervisor)


@pytest.fixture
def row() -> Iterator[Row]:
    """A row to fill; it is kept for the table."""
    made = Row("", "", "")
    yield made
    table.write(made)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one part of the tests where scripts/faults runs several nodes beside each other."""
    part, parts = map(int, os.environ.get("RAILNET_FAULTS_PART", "0/1").split("/"))
    kept = items[part::parts]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
