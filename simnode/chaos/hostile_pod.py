"""What a pod with NET_ADMIN does to the link of its rail, to keep the VF or to leave settings on it for the next pod."""

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from simnode.hardware.pf_properties import SimulatedPf
from simnode.linux import netns


def spoil(path: Path, ifname: str, pfs: Iterable[SimulatedPf]) -> None:
    """Change a link in the network namespace at `path` in each way that its kind permits, and rename it.

    Its alias stays: a simulated netdev names no PCI device, so Railnet knows it by the alias alone, as before Linux 5.14. It gets
    alternative names that other links have on the node, the names of PFs' netdevs and of the bridge; a refused
    change is left out, as an attacker would do.
    """
    commands = list(_commands(ifname, [pf.netdev for pf in pfs]))

    def run() -> None:
        for command in commands:
            subprocess.run(["ip", "link", *command], capture_output=True, check=False)

    netns.run_inside(path, run)


def _commands(ifname: str, taken: Sequence[str]) -> Iterator[list[str]]:
    for name in ("cni0", "flannel.1", *taken, *(f"{pf}v0" for pf in taken)):
        yield ["property", "add", "dev", ifname, "altname", name]
    yield ["set", ifname, "mtu", "1280"]
    yield ["set", ifname, "txqueuelen", "7"]
    yield ["set", ifname, "group", "9"]
    yield ["set", ifname, "promisc", "on"]
    yield ["set", ifname, "allmulticast", "on"]
    yield ["set", ifname, "down"]
    yield ["set", ifname, "name", "gone0"]
    yield ["add", ifname, "type", "dummy"]
