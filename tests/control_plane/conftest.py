"""One control plane for all tests of this folder, which scripts/with-control-plane runs."""

from collections.abc import Callable, Iterator

import pytest

from tests.control_plane.gang_cluster import STRANGERS
from tests.control_plane.nodes import Nodes
from tests.control_plane.server import ApiServer


@pytest.fixture(scope="session")
def server(measured: Callable[[str], None]) -> Iterator[ApiServer]:
    with ApiServer() as found:
        measured(f"with the control plane of Kubernetes {found.api.get('/version').object['gitVersion']}")
        yield found


@pytest.fixture
def nodes(server: ApiServer) -> Iterator[Nodes]:
    """Nodes of a test of gangs, which go at its end with the pods of no gang that it put on them."""
    created = Nodes(server.api)
    yield created
    server.api.delete(f"/api/v1/namespaces/{STRANGERS}/pods?gracePeriodSeconds=0")
    created.remove_all()
