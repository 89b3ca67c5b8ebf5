"""One control plane for all tests of this folder, which scripts/with-control-plane runs."""

from collections.abc import Callable, Iterator

import pytest

from tests.control_plane.server import ApiServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--host-pods", type=int, default=200, help="how many pods in host-network mode are made at once")


@pytest.fixture(scope="session")
def host_pods(request: pytest.FixtureRequest) -> int:
    found: int = request.config.getoption("host_pods")
    return found


@pytest.fixture(scope="session")
def server(measured: Callable[[str], None]) -> Iterator[ApiServer]:
    with ApiServer() as found:
        measured(f"with the control plane of Kubernetes {found.api.get('/version').object['gitVersion']}")
        yield found
