"""RDMA netlink of a real kernel: the namespace mode."""

import subprocess
from collections.abc import Iterator

import pytest

from railnet.kernel.netlink import rdma_netns_mode


@pytest.fixture
def exclusive() -> Iterator[None]:
    run("rdma", "system", "set", "netns", "exclusive")
    yield
    run("rdma", "system", "set", "netns", "shared")


@pytest.mark.usefixtures("guest", "exclusive")
def test_exclusive_mode_is_read() -> None:
    assert rdma_netns_mode.netns_mode() == "exclusive"


@pytest.mark.usefixtures("guest")
def test_shared_mode_is_read() -> None:
    assert rdma_netns_mode.netns_mode() == "shared"


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
