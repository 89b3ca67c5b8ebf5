"""Files of the node that no program should have made there: each costs itself, the daemon goes on, says why, and recovers."""

import json
import os
import resource
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simnode.node import RESOURCE, Node
from simnode.waiting import wait_until
from tests.node.primaries import RUN

NETWORKS = Path("/etc/cni/net.d")
REGISTRY = Path("/var/lib/kubelet/plugins_registry")
SECONDS = 60.0
STILL_SECONDS = 12.0  # in which every background task has done its work once


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def folder(path: Path) -> None:
    path.mkdir()


def full_folder(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def looping_folder(path: Path) -> None:
    path.mkdir()
    (path / "again").symlink_to("..")


LONG, LOOP = link_to("x" * 3000 + "/" + "y" * 300), link_to("00-loop.conflist")
NO_UTF8 = os.fsdecode(b"00-a\xff.conflist")

# A file, how it is made, and what the daemon says of it (a part of the log).
WHILE_SERVING = [
    pytest.param(NETWORKS / "00-long.conflist", LONG, "it takes 00-long.conflist", id="CNI link with a long target"),
    pytest.param(NETWORKS / "00-loop.conflist", LOOP, "it takes 00-loop.conflist", id="CNI link to itself"),
    pytest.param(NETWORKS / "00-pipe.conflist", pipe, "it takes 00-pipe.conflist", id="CNI named pipe"),
    pytest.param(NETWORKS / "00-large.conflist", large, "it takes 00-large.conflist", id="CNI file of a terabyte"),
    pytest.param(NETWORKS / NO_UTF8, Path.touch, r"it takes '00-a\udcff.conflist'", id="CNI name without UTF-8"),
    pytest.param(NETWORKS / "00-folder.conflist", looping_folder, "", id="CNI folder with a loop"),
    pytest.param(
        NETWORKS / "00-railnet.conflist", full_folder, "is a folder; remove it", id="folder in our conflist's place"
    ),
    pytest.param(NETWORKS / "00-railnet.conflist", pipe, "is written anew", id="pipe in our conflist's place"),
    pytest.param(RUN / "lock/0ddba11@eth0", folder, "", id="folder named like a lock"),
    pytest.param(RUN / "journal/0ddba11@eth0.json", folder, "", id="folder named like a record"),
]
AT_START = [
    *WHILE_SERVING[:-1],
    pytest.param(
        RUN / "journal/0ddba11@eth0.json", folder, "0ddba11@eth0.json cannot be read", id="folder named like a record"
    ),
    pytest.param(
        RUN / "journal/1ddba11@eth0.json", pipe, "1ddba11@eth0.json cannot be read", id="pipe named like a record"
    ),
    pytest.param(
        RUN / "journal/.2ddba11.x", full_folder, "is no record and stays", id="folder named like a temporary file"
    ),
    pytest.param(RUN / "quarantine/3ddba11@eth0.json", pipe, "3ddba11@eth0.json", id="pipe in the quarantine"),
    pytest.param(RUN / "cni.sock", folder, "", id="empty folder in the socket's place"),
    pytest.param(RUN / "cni.sock", full_folder, "remove the folder", id="folder in the socket's place"),
    pytest.param(RUN / "daemon.lock", full_folder, "daemon.lock cannot be locked", id="folder in the lock's place"),
    pytest.param(
        REGISTRY / "railnet-rdma-ib_vf-00000000001.sock",
        full_folder,
        "00000000001.sock stays",
        id="folder named like a socket",
    ),
]


def ready() -> bool:
    try:
        with urllib.request.urlopen("http://127.0.0.1:9474/readyz", timeout=30) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def trap(path: Path, make: Callable[[Path], None]) -> Iterator[None]:
    """Have something else at a path until the end of the block."""
    remove(path)
    make(path)
    made = path.lstat().st_ino
    try:
        yield
    finally:
        if os.path.lexists(path) and path.lstat().st_ino == made:  # else the daemon has its own there by now
            remove(path)


def remove(path: Path) -> None:
    if os.path.isdir(path) and not path.is_symlink():  # noqa: PTH112 - of a bad link, Path.is_dir raises
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def left_out(path: Path) -> None:
    """Remove what the daemon put into quarantine."""
    remove(RUN / "quarantine" / path.name)


def serves(node: Node) -> None:
    """Assert that the daemon lives, is ready, and attaches a rail."""
    wait_until(ready, SECONDS, "readiness")
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, SECONDS)
    node.remove_pod(node.run_pod("after", vfs=1))


@pytest.mark.parametrize(("path", "make", "said"), WHILE_SERVING)
def test_daemon_outlives_a_file_that_appears_while_it_serves(
    node: Node, path: Path, make: Callable[[Path], None], said: str
) -> None:
    daemon, before = node.daemon.process, len(node.daemon.log())
    with trap(path, make):
        wait_until(lambda: said in node.daemon.log()[before:], SECONDS, f"a message with {said!r}")
        with pytest.raises(TimeoutError):
            wait_until(lambda: daemon.poll() is not None, 2.5, "the daemon's end", 0.05)
    serves(node)

    assert node.daemon.process is daemon
    assert daemon.poll() is None


@pytest.mark.parametrize(("path", "make", "said"), AT_START)
def test_daemon_outlives_a_file_that_is_there_when_it_starts(
    node: Node, path: Path, make: Callable[[Path], None], said: str
) -> None:
    node.stop_daemon()
    before = len(node.daemon.log())
    with trap(path, make):
        node.start_daemon(wait=False)
        wait_until(lambda: said in node.daemon.log()[before:], SECONDS, f"a message with {said!r}")
        with pytest.raises(TimeoutError):
            wait_until(lambda: node.daemon.process.poll() is not None, 2.5, "the daemon's end", 0.05)
    left_out(path)
    serves(node)

    assert node.daemon.process.poll() is None


def test_daemon_outlives_a_time_without_descriptors(node: Node) -> None:
    daemon = node.daemon.process
    usual = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (3, usual[1]))
    with pytest.raises(TimeoutError):
        wait_until(lambda: daemon.poll() is not None, STILL_SECONDS, "the daemon's end", 0.05)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, usual)
    serves(node)

    assert daemon.poll() is None
    assert json.loads((NETWORKS / "00-railnet.conflist").read_bytes())["plugins"][0]["type"] == "railnet"
