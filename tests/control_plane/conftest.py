"""One control plane for all tests of this folder, which scripts/with-control-plane runs."""

from collections.abc import Callable, Iterator

import pytest

from tests.control_plane.server import ApiServer


@pytest.fixture(scope="session")
def server(measured: Callable[[str], None]) -> Iterator[ApiServer]:
    with ApiServer() as found:
        measured(f"with the control plane of Kubernetes {found.api.get('/version').object['gitVersion']}")
        yield found
