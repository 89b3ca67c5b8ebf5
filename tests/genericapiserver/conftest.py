"""One new API server for all tests of this folder, which scripts/apiserver runs."""

from collections.abc import Callable, Iterator

import pytest

from tests.genericapiserver.server import ApiServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--host-pods", type=int, default=200, help="how many pods in host-network mode are made at once")


@pytest.fixture(scope="session")
def host_pods(request: pytest.FixtureRequest) -> int:
    found: int = request.config.getoption("host_pods")
    return found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, measured: Callable[[str], None]) -> Iterator[ApiServer]:
    found = ApiServer(tmp_path_factory.mktemp("server"))
    try:
        found.start()
        # kube-apiserver makes this namespace itself (k8s.io/kubernetes/pkg/controlplane/controller/systemnamespaces)
        found.api.create("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
        measured(f"with the API server's library of Kubernetes {found.api.get('/version').object['gitVersion']}")
        yield found
    finally:
        found.stop()
