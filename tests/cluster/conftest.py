"""A real Kubernetes cluster with Railnet on its first node; one for all tests of this folder, which run by scripts/with-cluster."""

from collections.abc import Iterator

import pytest

from tests.cluster.dra_node import forget_claims, offering_by_dra
from tests.cluster.node import PFS, VFS, ClusterNode

pytest.register_assert_rewrite("tests.cluster.tfjob_tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nodes", type=int, default=2, help="how many nodes the cluster has")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the tests of the demo run first: they start a cluster of their own, and a machine may lack the memory for two."""
    items.sort(key=lambda item: item.path.name != "test_demo.py")


@pytest.fixture(scope="session")
def shared_node(request: pytest.FixtureRequest) -> Iterator[ClusterNode]:
    with ClusterNode(request.config.getoption("nodes")) as node:
        node.railnet.start()
        node.wait_for_vfs(VFS * len(PFS))
        yield node


@pytest.fixture
def node(shared_node: ClusterNode) -> Iterator[ClusterNode]:
    """A node with a running daemon; whatever a test does to it, nothing may be left when it ends."""
    yield shared_node
    shared_node.railnet.start()
    shared_node.railnet.roll_out()  # `start` waits for the first node alone, and may have begun to replace all daemons
    for fabric in shared_node.fabrics:
        fabric.start()
    assert shared_node.forget_pods() == []
    for name in shared_node.nodes():
        shared_node.wait_for_vfs(VFS * len(PFS), name)


@pytest.fixture(scope="module")
def offered_by_dra(shared_node: ClusterNode) -> Iterator[ClusterNode]:
    """The first node offers its VFs by DRA for all tests of a module: a change of the way takes twenty seconds."""
    shared_node.railnet.start()
    with offering_by_dra(shared_node):
        yield shared_node


@pytest.fixture
def dra(offered_by_dra: ClusterNode) -> Iterator[ClusterNode]:
    """As `node`, on a node that offers by DRA. No test of such a module may have `node`."""
    yield offered_by_dra
    offered_by_dra.railnet.start()
    offered_by_dra.railnet.roll_out()
    for fabric in offered_by_dra.fabrics:
        fabric.start()
    forget_claims(offered_by_dra)
