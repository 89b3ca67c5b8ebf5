"""A new API server, one for all tests of this folder, which run by scripts/apiserver."""

from collections.abc import Callable, Iterator

import pytest

from tests.genericapiserver.server import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, measured: Callable[[str], None]) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("server"))
    try:
        found.start()
        measured(f"with the API server's library of Kubernetes {found.api.get('/version').object['gitVersion']}")
        yield found
    finally:
        found.stop()
