"""One new API server for all tests of this folder, which scripts/apiserver runs."""

from collections.abc import Callable, Iterator

import pytest

from tests.genericapiserver.server import ApiServer


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
