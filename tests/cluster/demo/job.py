"""The job of the demo: four ranks of PyTorch with gloo, two on each node, which add up tensors over net1."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import pytorch

NAME = "demo"
"""Of the job, and of its namespace."""

WORKERS, GPUS = 4, 4
"""How many workers, and the GPUs of each: a node says that it has eight, so two workers fit on it."""

ROUNDS, MEBIBYTES = 4, 4
_PROGRAM = f"""\
import os
import time
import torch
from torch import distributed

distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
began = time.monotonic()
for _ in range({ROUNDS}):
    tensor = torch.ones({MEBIBYTES << 18})
    distributed.all_reduce(tensor)
    assert bool((tensor == size).all()), tensor
print(f"rank {{rank}} of {{size}}: {ROUNDS} all-reduces of {MEBIBYTES} MiB in {{time.monotonic() - began:.1f}} s")
for line in open("/proc/net/dev"):
    name, _, counted = line.strip().partition(":")
    if counted and name != "lo":
        print("carried", name, int(counted.split()[0]) + int(counted.split()[8]))
"""
_CHANGES: dict[str, Any] = {
    "image": pytorch.NAME,
    "command": ["/usr/bin/python3.11", "-c", _PROGRAM],
    "workers": WORKERS,
    "gpus": GPUS,
    "processes": 1,
    "rails": 1,
    "gang": True,
    "cpu": "50m",
    "memory": "1Gi",
}


class _Readable(yaml.SafeDumper):
    """Writes the program as lines."""


def _as_lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _as_lines)


def edit(file: Path) -> None:
    """Change the file that `railnet train init` wrote, as a person does."""
    file.write_text(yaml.dump({**yaml.safe_load(file.read_text()), **_CHANGES}, Dumper=_Readable, sort_keys=False))


def carried(log: str) -> Mapping[str, int]:
    """Return the bytes that each interface of a worker had carried at its end, in both directions."""
    return {name: int(count) for name, count in re.findall(r"^carried (\w+) (\d+)$", log, re.MULTILINE)}


def ended(log: str) -> str:
    """Return a worker's line about its rank; empty if it did not come to its end."""
    return next((line for line in log.splitlines() if line.startswith("rank ")), "")
