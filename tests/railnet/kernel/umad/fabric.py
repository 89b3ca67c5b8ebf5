"""A simulated InfiniBand fabric (ibsim), the real subnet manager (OpenSM), and programs that run on its hosts.

A program on a host sees the host's port through Debian's libumad2sim, which takes the place of the C library's open, read, write, poll
and ioctl for `/dev/infiniband/umad0`. The switches' answers are ibsim's, whose authors wrote them from the specification.
"""

import os
import re
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from tests.railnet.kernel.umad.datagrams import SMP

FABRIC = Path(os.environ.get("RAILNET_FABRIC", "/nonexistent"))
LIBRARIES = FABRIC / "usr/lib/x86_64-linux-gnu"
TOPOLOGY = Path(__file__).with_name("fabric.topo")
SMPQUERY = (str(FABRIC / "usr/sbin/smpquery"), "-D", "NodeInfo", "0,1")
_SECONDS = 60.0
_READY = "Network simulator ready."
_GET = b"\x01\x81\x01\x01"  # the beginning of an SMP with a directed route and the method Get


class Fabric:
    """A fabric that runs; a context manager. Folders that libumad2sim makes are below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The sockets are abstract: two fabrics of one name would be one.
        self._environment = {**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES), "IBSIM_SOCKNAME": uuid.uuid4().hex}

    def __enter__(self) -> Self:
        self._simulator = subprocess.Popen(
            ["stdbuf", "-oL", FABRIC / "usr/bin/ibsim", "-s", "-n", TOPOLOGY],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._simulator.stdout is not None
        assert any(_READY in line for line in self._simulator.stdout), "ibsim has ended"
        return self

    def __exit__(self, *_: object) -> None:
        self._simulator.kill()
        self._simulator.communicate()

    def run(self, host: str, *command: str | Path, status: int = 0) -> str:
        """Run a program on a host, and return what it prints."""
        preload = f"LD_PRELOAD={LIBRARIES}/umad2sim/libumad2sim.so"
        return self._done(host, ["env", preload, *command], status)

    def sent(self, host: str, *command: str | Path) -> list[bytes]:
        """Run a program on a host, and return the SMPs that it sends into the fabric."""
        trace = self._folder / "trace"
        preload = f"LD_PRELOAD={LIBRARIES}/umad2sim/libumad2sim.so"
        options = [
            "--follow-forks",
            "--trace=write",
            "--strings-in-hex=all",
            "--string-limit=4096",
            f"--output={trace}",
        ]
        self._done(host, ["strace", *options, f"--env={preload}", *command], 0)
        written = [
            bytes.fromhex(match[1].replace("\\x", ""))
            for match in re.finditer(r'write\(\d+, "(.*)",', trace.read_text())
        ]
        found = [(data, data.find(_GET)) for data in written]
        return [data[start : start + SMP] for data, start in found if start >= 0]

    def _done(self, host: str, command: Sequence[str | Path], status: int) -> str:
        environment = {
            **self._environment,
            "SIM_HOST": host,
            "OSM_TMP_DIR": str(self._folder),
            "OSM_CACHE_DIR": str(self._folder),
        }
        done = subprocess.run(
            command, env=environment, cwd=self._folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout


def require_fabric() -> None:
    """Fail where scripts/setup has not fetched the fabric."""
    if not FABRIC.is_dir():
        pytest.fail("RAILNET_FABRIC names no fabric: run this by scripts/test or scripts/setup")
