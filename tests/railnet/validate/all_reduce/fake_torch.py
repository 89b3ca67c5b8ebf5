"""A stand-in for PyTorch, as a package that the program of a rank imports: its ranks are alone, and agree on each sum.

What it does wrong is said by the variable FAULT. Each all-reduce adds its bytes to the file that CARRIES names, as a netdev's counter.
"""

import textwrap
from pathlib import Path

_TORCH = """
import os
__version__ = "9.9.fake"
float32, float64 = "float32", "float64"
if os.environ.get("FAULT") == "no torch":
    raise ImportError("libtorch.so: cannot open shared object file")


class Tensor:
    def __init__(self, numbers, value):
        self.numbers, self.value = numbers, value

    def __eq__(self, value):
        return Tensor(self.numbers, self.value == value)

    def __getitem__(self, place):
        return self.value

    def all(self):
        return self.value

    def fill_(self, value):
        self.value = value


def full(shape, value, dtype, device):
    return Tensor(shape[0], value)


def tensor(values, dtype, device):
    return Tensor(2 * len(values), values[0])


class cuda:
    class nccl:
        @staticmethod
        def version():
            return (2, 19, 3)

    @staticmethod
    def is_available():
        return "GPU" in os.environ

    @staticmethod
    def set_device(number):
        pass

    @staticmethod
    def synchronize():
        pass
"""
_DISTRIBUTED = """
import os
import pathlib
import signal
import subprocess
import time

_calls = 0


class ReduceOp:
    MAX = "max"


def init_process_group(backend, init_method, rank, world_size, timeout):
    global _rank, _ranks
    _rank, _ranks = rank, world_size
    if os.environ.get("FAULT") == "alone":
        time.sleep(600)
    for line in os.environ.get("SAYS", "").split("|"):
        print(line)
    print("variables", os.environ["NCCL_SOCKET_IFNAME"], os.environ["GLOO_SOCKET_IFNAME"], os.environ.get("NCCL_IB_HCA"))


def all_reduce(tensor, op=None):
    global _calls
    _calls += 1
    fault = os.environ.get("FAULT") if _calls > 1 else ""
    if fault == "hangs":
        time.sleep(600)
    if fault == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "raises":
        raise RuntimeError("Connection closed by peer [10.56.0.3]:1234")
    if fault == "flood":
        while True:
            print("x" * 100000)
    if fault == "leaves a child":
        subprocess.Popen(["sleep", "60"])
        os._exit(3)
    carries = os.environ.get("CARRIES")
    if carries:
        counter = pathlib.Path(carries)
        counter.write_text(str(int(counter.read_text()) + tensor.numbers * 4))
    if fault == "slow":
        time.sleep(0.05)
    if op is None and tensor.value == _rank + 1:
        tensor.value = 17.0 if fault == "wrong" else _ranks * (_ranks + 1) / 2
"""


def install(folder: Path) -> None:
    """Write the package into a folder."""
    package = folder / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(textwrap.dedent(_TORCH))
    (package / "distributed.py").write_text(textwrap.dedent(_DISTRIBUTED))
