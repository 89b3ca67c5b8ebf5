"""The request equals that of iproute2's `rdma` byte for byte, and `rdma` reads the same mode from an answer.

CI's kernels have no RDMA, so `rdma` could not open its socket. strace replaces the socket by one of NETLINK_USERSOCK, which
every kernel has, with prepared answers in it. strace also shows the requests. So the comparison with the real tool works on
every kernel. It does not cover the kernel's own answers.
"""

import contextlib
import re
import socket
import subprocess
from pathlib import Path

import pytest

from railnet.kernel.netlink import rdma_netns_mode
from tests.railnet.kernel.netlink.test_rdma_netns_mode import ACKNOWLEDGED, DONE, MLX5_7, FakeKernel, system

_USERSOCK = 2  # linux/netlink.h, NETLINK_USERSOCK
_SEQUENCE = slice(8, 12)  # in struct nlmsghdr; `rdma` begins with the time of day
LIST = MLX5_7 + DONE  # the answer to the first request of every `rdma` command


def run_rdma(folder: Path, *arguments: str, answers: list[bytes]) -> tuple[list[bytes], str]:
    """Run `rdma -j` on a socket with prepared answers. Return its requests and its output."""
    trace = folder / "trace"
    with contextlib.ExitStack() as stack:
        kernel, end = (stack.enter_context(netlink()) for _ in range(2))
        for answer in answers:
            kernel.sendto(without_sequence(answer), end.getsockname())
        inject = {
            "socket": end.fileno(),
            "bind": 0,
            "sendto": 0,
            "close": 0,
        }  # `rdma` opens and closes a socket for each request
        options = [f"--inject={call}:retval={result}" for call, result in inject.items()]
        show = ["--trace=socket,bind,sendto,close", f"--write={end.fileno()}", f"--output={trace}"]
        done = subprocess.run(
            ["strace", *show, *options, "rdma", "-j", *arguments],
            pass_fds=[end.fileno()],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    assert done.returncode == 0, done.stderr
    return traced_requests(trace.read_text()), done.stdout


def netlink() -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _USERSOCK)
    opened.bind((0, 0))
    return opened


def without_sequence(messages: bytes) -> bytes:
    """Clear the sequence numbers, which are unknown before `rdma` runs. libmnl accepts 0 in place of any number."""
    data = bytearray(messages)
    at = 0
    while at < len(data):
        data[at + 8 : at + 12] = bytes(4)
        at += int.from_bytes(data[at : at + 4], "little") + 3 & ~3
    return bytes(data)


def traced_requests(trace: str) -> list[bytes]:
    """Return the requests from strace's hexadecimal dumps, which follow each call."""
    requests: list[bytes] = []
    for line in trace.splitlines():
        if line.startswith("sendto("):
            requests.append(b"")
        elif (dump := re.match(r" \| [0-9a-f]{5}  ((?:[0-9a-f]{2} ?| )+)", line)) is not None:
            requests[-1] += bytes.fromhex(dump[1])
    return requests


def test_request_equals_iproute2s(tmp_path: Path) -> None:
    kernel = FakeKernel(system(0), ACKNOWLEDGED)

    requests, _ = run_rdma(tmp_path, "system", "show", answers=[LIST, system(0), ACKNOWLEDGED])
    rdma_netns_mode.ask(kernel)

    assert [without_sequence(request) for request in requests[1:]] == [without_sequence(own) for own in kernel.sent]


@pytest.mark.parametrize("mode", [0, 1])
def test_iproute2_reads_the_same_netns_mode_from_an_answer(tmp_path: Path, mode: int) -> None:
    _, printed = run_rdma(tmp_path, "system", "show", answers=[LIST, system(mode), ACKNOWLEDGED])

    assert rdma_netns_mode.ask(FakeKernel(system(mode), ACKNOWLEDGED)) in printed
