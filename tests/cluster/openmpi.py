"""The real MPI job: Open MPI and sshd of Debian's packages, in the image at $RAILNET_OPENMPI_IMAGE (scripts/job-image)."""

import re

NAME = "docker.io/local/openmpi:1"
RANKS, ROUNDS, MESSAGE_BYTES = 2, 4, 8 << 20
SSHD = ["/usr/sbin/sshd", "-De"]
# Each rank says at its end how many bytes came and went on each interface of its pod.
_PROGRAM = f"""\
import pathlib
import socket
from mpi4py import MPI

def counted():
    lines = [line.replace(":", " ").split() for line in pathlib.Path("/proc/net/dev").read_text().splitlines()[2:]]
    return {{fields[0]: (int(fields[1]), int(fields[9])) for fields in lines}}

world, before = MPI.COMM_WORLD, counted()
for _ in range({ROUNDS}):
    peer = (world.rank + 1) % world.size
    got = world.sendrecv(bytearray({MESSAGE_BYTES}), dest=peer, source=peer)
    assert len(got) == {MESSAGE_BYTES}
for name, (received, sent) in counted().items():
    print("carried", world.rank, socket.gethostname(), name, received - before[name][0], sent - before[name][1], flush=True)
"""
MPIRUN = ["mpirun", "--allow-run-as-root", "-n", str(RANKS), "/usr/bin/python3.11", "-c", _PROGRAM]


def carried(log: str) -> dict[str, dict[str, tuple[int, int]]]:
    """Return by pod and interface how many bytes came and went, as the launcher's log says."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for pod, name, received, sent in re.findall(r"carried \d+ (\S+) (\S+) (\d+) (\d+)", log):
        found.setdefault(pod, {})[name] = int(received), int(sent)
    return found
