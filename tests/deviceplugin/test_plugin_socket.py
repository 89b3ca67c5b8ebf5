"""The file of a pool's socket, and those of earlier starts."""

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.plugin_socket import remove_stale_sockets, socket_name

RAIL = "rdma/ib_vf"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a short path: a Unix socket's path has at most 107 bytes, and pytest's folders take most of them."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as name:
        yield Path(name)


def a_socket(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    return listener


def test_stale_sockets_of_an_earlier_start_are_removed(folder: Path) -> None:
    a_socket(folder / socket_name(RAIL, 1)).close()
    a_socket(folder / f".{socket_name(RAIL, 2)}").close()

    remove_stale_sockets(folder, RAIL)

    assert list(folder.iterdir()) == []


def test_socket_on_which_a_process_listens_is_not_removed(folder: Path) -> None:
    path = folder / socket_name(RAIL, 1)
    with a_socket(path) as listener:
        listener.listen(1)

        remove_stale_sockets(folder, RAIL)

        assert path.exists()


@pytest.mark.parametrize(
    "name", ["csi.example.com-reg.sock", socket_name("rdma/ib_vf.x", 1), "railnet-rdma-ib_vf.sock"]
)
def test_sockets_of_other_plugins_are_not_removed(folder: Path, name: str) -> None:
    a_socket(folder / name).close()

    remove_stale_sockets(folder, RAIL)

    assert [path.name for path in folder.iterdir()] == [name]


def test_socket_name_has_no_slash_and_no_dot_of_the_resource() -> None:
    assert socket_name("example.com/ib_vf", 0x1A) == "railnet-example-com-ib_vf-0000000001a.sock"
