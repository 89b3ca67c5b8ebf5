"""A real Kubernetes node with Railnet; one for all tests of this folder, which run by scripts/cluster."""

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.node import PFS, VFS, ClusterNode

_measured = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=1, help="how often pods with and without Railnet are compared")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_measured] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[_measured]:
        terminalreporter.write_line(f"measured: {line}")


@pytest.fixture(scope="session")
def rounds(request: pytest.FixtureRequest) -> int:
    found: int = request.config.getoption("rounds")
    return found


@pytest.fixture(scope="session")
def measured(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say something at the end of the run."""
    return request.config.stash[_measured].append


@pytest.fixture(scope="session")
def shared_node() -> Iterator[ClusterNode]:
    with ClusterNode() as node:
        node.railnet.start()
        node.wait_for_vfs(VFS * len(PFS))
        yield node


@pytest.fixture
def node(shared_node: ClusterNode) -> Iterator[ClusterNode]:
    """A node with a running daemon; whatever a test does to it, nothing may be left when it ends."""
    yield shared_node
    shared_node.railnet.start()
    for fabric in shared_node.fabrics:
        fabric.start()
    assert shared_node.forget_pods() == []
    shared_node.wait_for_vfs(VFS * len(PFS))
