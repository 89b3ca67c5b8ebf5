"""Runs one rank of an all-reduce over one rail. A program of its own: an image needs python3 and PyTorch, and nothing of Railnet.

The rank is a process of its own, which this program watches: it may crash, hang, or write without end. It tells its steps by a pipe. At the
end this program prints one line of JSON: the steps, how the rank ended, the lines in which NCCL names its transport, and what the rails of the
pod have carried meanwhile. Not here: what that means (`result`, `transport`).
"""

from __future__ import annotations  # Python 3.9 evaluates no `int | None`

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import re
import resource
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

_NETDEVS = "/sys/class/net"
_RAIL = re.compile(r"net[1-9][0-9]*")
_OCTETS_OF_A_WORD = 4  # port_xmit_data counts octets, divided by 4 (Documentation/ABI/stable/sysfs-class-infiniband)
_BYTES_OF_A_NUMBER = 4  # float32
_LEAST_ITERATIONS, _MOST_ITERATIONS = 3, 20
_TOO_SLOW_FROM = 1 << 20  # bytes of a message whose time is that of its bytes, and not of its start
# Source of NCCL's words: NVIDIA/nccl, src/init.cc ("Using network %s") and src/transport/net.cc ("via NET/%s/%d").
_OF_NCCL = re.compile(rb"NET/|Using network |NCCL WARN")
_MOST_LINES, _LAST_LINES, _LONGEST_LINE = 40, 8, 300
_MOST_STEPS, _LONGEST_STEP = 40, 2048
_READ = 1 << 16
_EXIT_SECONDS, _FAREWELL_SECONDS = 10.0, 1.0
_ALIVE_SECONDS = 10.0


def watch(command: Sequence[str], environment: dict[str, str], limits: tuple[float, float]) -> dict[str, object]:
    """Run a rank, and return its steps, its last words, and how it ended. It is killed at a limit.

    `limits` are seconds: until all ranks have met, and from then to the end.
    """
    reading, writing = os.pipe()
    with subprocess.Popen(
        [*command, "--steps", str(writing)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(writing,),
        env=environment,
    ) as process:
        os.close(writing)
        watched = _Watched(limits)
        try:
            output = process.stdout.fileno() if process.stdout else reading
            hung = not watched.read(reading, output, lambda: process.poll() is not None)
            status: int | None = None
            if not hung:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(_EXIT_SECONDS)
        finally:
            process.kill()
            os.close(reading)
    return {**watched.told(), "status": status, "hung": hung}


class _Watched:
    """What a rank tells and writes, of which no more than a bounded part is kept."""

    def __init__(self, limits: tuple[float, float]) -> None:
        self._end, self._measure_seconds = time.monotonic() + limits[0], limits[1]
        self._said_alive = time.monotonic()
        self._steps: list[dict[str, Any]] = []
        self._nccl: list[str] = []
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    def read(self, steps: int, output: int, has_ended: Callable[[], bool]) -> bool:
        """Read until both files have ended, or the rank has and only its children keep them; return False if that is not before the limit."""
        readers = {steps: (_Lines(_LONGEST_STEP), self._keep_step), output: (_Lines(_LONGEST_LINE), self._keep_line)}
        with selectors.DefaultSelector() as selector:
            for source in readers:
                selector.register(source, selectors.EVENT_READ)
            while selector.get_map():
                if time.monotonic() > self._end:
                    return False
                self._say_alive()
                ready = selector.select(1.0)
                if not ready and has_ended():
                    return True
                for key, _ in ready:
                    data = os.read(key.fd, _READ)
                    if not data:
                        selector.unregister(key.fd)
                    lines, keep = readers[key.fd]
                    for line in lines.of(data):
                        keep(line)
        return True

    def _say_alive(self) -> None:
        """Write a blank, which JSON permits, now and then: a proxy before the API server may end connections that are silent."""
        if time.monotonic() - self._said_alive > _ALIVE_SECONDS:
            self._said_alive = time.monotonic()
            sys.stdout.write(" ")
            sys.stdout.flush()

    def told(self) -> dict[str, object]:
        """Return what was kept."""
        return {"steps": self._steps, "nccl": self._nccl, "last": [line for line in self._last if line.strip()]}

    def _keep_step(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, RecursionError):
            step = json.loads(line)
            if isinstance(step, dict) and len(self._steps) < _MOST_STEPS:
                self._steps.append(step)
                if step.get("step") == "met":
                    self._end = time.monotonic() + self._measure_seconds

    def _keep_line(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        if _OF_NCCL.search(line) and len(self._nccl) < _MOST_LINES and text not in self._nccl:
            self._nccl.append(text)
        self._last.append(text)


class _Lines:
    """Cuts bytes into lines, of which no more than a bounded length is kept."""

    def __init__(self, longest: int) -> None:
        self._longest, self._rest = longest, b""

    def of(self, data: bytes) -> list[bytes]:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: self._longest]
        return [line[: self._longest] for line in lines]


def environment_of(netdev: str, netdevs: str) -> dict[str, str]:
    """Return the variables of a rank: NCCL and gloo use this rail alone, and NCCL says which transport it takes."""
    device = device_of(netdev, netdevs)
    changes = {
        "NCCL_SOCKET_IFNAME": f"={netdev}",  # exactly this one: `net1` is a prefix of net10
        "GLOO_SOCKET_IFNAME": netdev,
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "PYTHONUNBUFFERED": "1",
        **({"NCCL_IB_HCA": f"={device}"} if device else {}),
    }
    kept = {name: value for name, value in os.environ.items() if name != "NCCL_DEBUG_FILE"}
    return {**kept, **changes}


def device_of(netdev: str, netdevs: str) -> str:
    """Return the RDMA device of a netdev; empty if it has none."""
    try:
        return min((path.name for path in Path(netdevs, netdev, "device/infiniband").iterdir()), default="")
    except OSError:
        return ""


def transmitted(netdevs: str) -> dict[str, dict[str, int]]:
    """Return the bytes that were sent since the start of each netdev, and by the RDMA ports of each rail; what cannot be read is left out."""
    by_tcp: dict[str, int] = {}
    by_rdma: dict[str, int] = {}
    for folder in sorted(Path(netdevs).iterdir()):
        if folder.name == "lo":
            continue
        with contextlib.suppress(OSError, ValueError):
            by_tcp[folder.name] = int((folder / "statistics/tx_bytes").read_text())
        if _RAIL.fullmatch(folder.name):
            ports = sorted((folder / "device/infiniband").glob("*/ports/*/counters/port_xmit_data"))
            with contextlib.suppress(OSError, ValueError):  # `N/A (no PMA)`
                if ports:
                    by_rdma[folder.name] = sum(int(port.read_text()) for port in ports) * _OCTETS_OF_A_WORD
    return {"tcp": by_tcp, "rdma": by_rdma}


def _moved(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {
        kind: {name: count - before[kind][name] for name, count in counts.items() if name in before[kind]}
        for kind, counts in after.items()
    }


def settings() -> dict[str, object]:
    """Return what keeps NCCL from RDMA: the limit of locked memory in bytes (-1 for none), variables, and whether libibverbs can be loaded."""
    try:
        ctypes.CDLL("libibverbs.so.1")
        has_libibverbs = True
    except OSError:
        has_libibverbs = False
    names = ("NCCL_IB_DISABLE", "NCCL_NET")
    return {
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "libibverbs": has_libibverbs,
        "variables": {name: os.environ[name][:_LONGEST_LINE] for name in names if name in os.environ},
    }


def run_rank(given: argparse.Namespace, sizes: Sequence[int]) -> None:
    """Meet the other ranks, and measure each size; tell each step."""

    def tell(step: str, **facts: object) -> None:
        os.write(given.steps, json.dumps({"step": step, **facts}).encode() + b"\n")

    try:
        torch = importlib.import_module("torch")
        distributed = importlib.import_module("torch.distributed")
    except ImportError as error:
        tell("no torch", why=str(error)[:_LONGEST_LINE], nccl_tests=shutil.which("all_reduce_perf") is not None)
        return
    has_gpu = bool(torch.cuda.is_available())
    backend = "nccl" if has_gpu else "gloo"
    tell("imported", torch=str(torch.__version__), backend=backend, nccl=_nccl_version(torch) if has_gpu else "")
    try:
        if has_gpu:
            torch.cuda.set_device(0)
        distributed.init_process_group(
            backend,
            init_method=f"tcp://{given.meet}",
            rank=given.rank,
            world_size=given.ranks,
            timeout=timedelta(seconds=given.start_seconds),
        )
        rank = _Rank(torch, distributed, "cuda" if has_gpu else "cpu", given.rank, given.ranks)
        rank.timed(rank.tensor(1, 0.0))  # NCCL makes its connections with the first one
        tell("met")
        measure(rank, sizes, given.seconds, tell)
    except Exception as error:  # noqa: BLE001 - PyTorch raises errors of many classes, and the one who reads this sees no other word
        tell("failed", why=f"{type(error).__name__}: {error}"[:_LONGEST_LINE])
        sys.stdout.flush()
        os._exit(1)  # the threads of other ranks' connections may hang
    tell("done")
    time.sleep(_FAREWELL_SECONDS)  # another rank may still receive from this one
    os._exit(0)  # PyTorch's threads are not awaited


def _nccl_version(torch: Any) -> str:
    try:
        version = torch.cuda.nccl.version()
    except Exception:  # noqa: BLE001 - it is a word for the reader, and differs from version to version
        return ""
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


class _Rank:
    """One rank that has met the others."""

    def __init__(self, torch: Any, distributed: Any, device: str, rank: int, ranks: int) -> None:
        self._torch, self._distributed, self._device = torch, distributed, device
        self.rank, self.ranks = rank, ranks

    def tensor(self, numbers: int, value: float) -> Any:
        return self._torch.full((numbers,), value, dtype=self._torch.float32, device=self._device)

    def timed(self, tensor: Any) -> float:
        """Add a tensor up over all ranks, and return the seconds that took."""
        self._wait()
        began = time.perf_counter()
        self._distributed.all_reduce(tensor)
        self._wait()
        return time.perf_counter() - began

    def slowest(self, seconds: float) -> float:
        """Return the longest time of all ranks: all decide by the same number."""
        tensor = self._torch.tensor([seconds], dtype=self._torch.float64, device=self._device)
        self._distributed.all_reduce(tensor, op=self._distributed.ReduceOp.MAX)
        return float(tensor[0])

    def _wait(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()


def measure(rank: _Rank, sizes: Sequence[int], seconds: float, tell: Callable[..., None]) -> None:
    """Measure each size for about some seconds: one all-reduce that is checked, one to warm up, and the median of the others.

    A size that would take more than twice these seconds for one all-reduce ends the measurement, of all ranks at the same place.
    """
    total = rank.ranks * (rank.ranks + 1) / 2
    for number, size in enumerate(sizes):
        tensor = rank.tensor(max(1, size // _BYTES_OF_A_NUMBER), rank.rank + 1.0)
        first = rank.slowest(rank.timed(tensor))
        right = bool((tensor == total).all())
        iterations = max(_LEAST_ITERATIONS, min(_MOST_ITERATIONS, int(seconds / max(first, 1e-9))))
        times = []
        for _ in range(1 + iterations):
            tensor.fill_(1.0)
            times.append(rank.timed(tensor))
        usual = rank.slowest(statistics.median(times[1:]))
        tell("size", bytes=size, seconds=usual, all_reduces=2 + iterations, right=right)
        if size >= _TOO_SLOW_FROM and number + 1 < len(sizes) and usual * sizes[number + 1] / size > 2 * seconds:
            tell("slow", bytes=sizes[number + 1])
            return


def main() -> None:
    """Watch a rank and print JSON, or be the rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--meet", required=True, help="the address and port of rank 0")
    parser.add_argument("--netdev", required=True)
    parser.add_argument("--sizes", required=True, help="bytes, separated by commas")
    parser.add_argument("--seconds", type=float, required=True, help="of each size")
    parser.add_argument("--start-seconds", type=float, required=True, help="until all ranks have met")
    parser.add_argument("--measure-seconds", type=float, required=True, help="from then to the end")
    parser.add_argument("--netdevs", default=_NETDEVS, help=f"the folder of netdevs ({_NETDEVS})")
    parser.add_argument("--steps", type=int, help="be the rank, and tell the steps to this file descriptor")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    if given.steps is not None:
        # The rank ends if the program that watches it was killed. The signal is not handled: it ends a process that hangs in C, too.
        signal.alarm(int(given.start_seconds + given.measure_seconds + _EXIT_SECONDS))
        run_rank(given, sizes)
        return
    before = transmitted(given.netdevs)
    command = [sys.executable or "python3", *sys.argv]
    outcome = watch(command, environment_of(given.netdev, given.netdevs), (given.start_seconds, given.measure_seconds))
    told = {
        **outcome,
        "transmitted": _moved(before, transmitted(given.netdevs)),
        "device": device_of(given.netdev, given.netdevs),
        "settings": settings(),
    }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
