"""Plugins made of a line of shell, an environment that finds them, and the descriptors that running them may leak."""

from pathlib import Path

from cni.host.environment import Environment
from railnet.kernel.waiting import block_until


def a_plugin(folder: Path, name: str, script: str) -> str:
    """Write an executable. Return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def an_environment(path: Path, command: str = "ADD", **changes: str) -> Environment:
    """Return a request's environment with `path` as CNI_PATH."""
    raw = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "c0ffee",
        "CNI_NETNS": "/run/netns/cni-1",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": str(path),
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=ml;K8S_POD_NAME=train-0;K8S_POD_UID=uid-1",
        **changes,
    }
    return Environment({name.encode(): value.encode() for name, value in raw.items()})


def descriptors() -> list[str]:
    """List this process's open descriptors."""
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def left_open(before: list[str]) -> set[str]:
    """Return the descriptors that are open and were not, after a while: gRPC's threads open and close some of their own."""
    block_until(lambda: not set(descriptors()) - set(before), 20, 0.02)
    return set(descriptors()) - set(before)
