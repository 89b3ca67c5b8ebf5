"""One control plane for all tests of this folder, which scripts/with-control-plane runs."""

from collections.abc import Callable, Generator, Iterator

import pytest

from tests.control_plane.gang_cluster import STRANGERS
from tests.control_plane.nodes import Nodes
from tests.control_plane.server import ApiServer


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show beside a failure what the control plane then had, and what its programs said last: later tests change both."""
    report = yield
    server = getattr(item, "funcargs", {}).get("server")
    if report.failed and isinstance(server, ApiServer):
        report.sections += server.described()
    return report


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
