"""Fixtures of the fault matrix: the supervised node, and a row of the matrix for each test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.chaos.syscall_supervisor import Supervisor
from simnode.node import Node
from tests.faults import matrix
from tests.faults.matrix import Row
from tests.faults.supervised_node import SupervisedNode


@pytest.fixture(scope="module")
def supervised() -> Iterator[SupervisedNode]:
    with (
        Supervisor(Path("/run/simnode/supervisor.sock")) as supervisor,
        Node(Path(os.environ["RAILNET_CNI_PLUGINS"])) as node,
    ):
        yield SupervisedNode(node, supervisor)


@pytest.fixture
def row() -> Iterator[Row]:
    """A row of the matrix; it is written to the file of rows when the test ends."""
    made = Row("", "", "")
    yield made
    matrix.write(made)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one part of the tests, because scripts/faults runs several nodes at once, each with another part."""
    part, parts = map(int, os.environ.get("RAILNET_FAULTS_PART", "0/1").split("/"))
    kept = items[part::parts]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
