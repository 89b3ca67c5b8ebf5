"""A new API server, one for all tests of this folder, which run by scripts/apiserver."""

from collections.abc import Iterator

import pytest

from tests.genericapiserver.server import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("server"))
    try:
        found.start()
        yield found
    finally:
        found.stop()
