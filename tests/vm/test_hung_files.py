"""A file of a real VF's sysfs that never answers: a FIFO, bind-mounted over the file, whose open hangs.

The VF is unhealthy alone, the other card's pods start and end, the daemon answers, and SIGTERM ends it in its normal time.
"""

import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.vm.guest import DEVICES, PFS, VFS, Guest

_END_SECONDS = 180.0  # an emulated processor is slow; a daemon that waited for the read would never end


@contextmanager
def hung(file: Path, folder: Path) -> Iterator[None]:
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    subprocess.run(["mount", "--bind", fifo, file.resolve()], check=True)
    try:
        yield
    finally:
        writer = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)  # the daemon's opens return
        subprocess.run(["umount", file.resolve()], check=True)
        os.close(writer)


@pytest.mark.parametrize(("name", "healthy"), [("virtfn1/net/*/mtu", 2 * VFS - 1), ("sriov_totalvfs", VFS)])
def test_file_that_hangs_costs_its_function_alone(guest: Guest, tmp_path: Path, name: str, healthy: int) -> None:
    (file,) = (DEVICES / PFS[1]).glob(name)
    with hung(file, tmp_path):
        guest.wait_until_healthy(healthy)
        pods = [guest.run(f"train{number}") for number in range(2)]
        for pod in pods:
            guest.remove(pod)
        with urllib.request.urlopen("http://127.0.0.1:9474/healthz", timeout=30) as answer:
            status = answer.status
        guest.daemon.process.send_signal(signal.SIGTERM)
        ended = guest.daemon.process.wait(_END_SECONDS)

    assert (status, ended) == (200, 0)
    assert "have not answered for" in guest.daemon.log()
