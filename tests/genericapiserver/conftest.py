"""A new API server, one for all tests of this folder, which run by scripts/apiserver."""

from collections.abc import Callable, Iterator

import pytest

from tests.genericapiserver.server import Server

_measured = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_measured] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[_measured]:
        terminalreporter.write_line(f"measured: {line}")


@pytest.fixture(scope="session")
def measured(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say something at the end of the run."""
    return request.config.stash[_measured].append


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, measured: Callable[[str], None]) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("server"))
    try:
        found.start()
        measured(f"with the API server's library of Kubernetes {found.api.get('/version').object['gitVersion']}")
        yield found
    finally:
        found.stop()
