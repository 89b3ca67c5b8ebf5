"""Measure the memory of the node daemon: at start, with 64 VFs attached, and after 1,000 ADD and DEL beside them.

Run by `scripts/bench memory`, inside a simulated node: 8 PFs with 9 VFs each, the real flannel chain. VmRSS is the kernel's
own figure, of the whole process with its libraries.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.pf_properties import SimulatedPf
from simnode.node import Node

RAILS = 8
VFS = 9  # on each PF: eight for the pods that stay, one for those that come and go
PODS = 1000
EVERY = 250
PFS = tuple(
    SimulatedPf(PciAddress(0, 3 + 0x10 * rail, 0, 0), Guid(0xB8599F0300F98F00 + 0x10 * rail), f"ibs{rail}")
    for rail in range(RAILS)
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench memory", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--pods", type=int, default=PODS, help=f"pods that come and go ({PODS})")
    arguments = parser.parse_args()
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), PFS, VFS) as node:
        node.install()
        node.start_daemon()
        figures = measure(node, arguments.pods)
    for name, mebibytes in figures.items():
        if not arguments.json:
            print(f"{name:<32}{mebibytes:>8.1f} MiB")
    if arguments.json:
        print(json.dumps(figures))


def measure(node: Node, pods: int) -> dict[str, float]:
    """Return VmRSS in MiB at each point."""
    figures = {"serving": resident(node)}
    for number in range(RAILS):
        node.run_pod(f"stays-{number}", vfs=RAILS)
    figures["64 VFs attached"] = resident(node)
    for number in range(1, pods + 1):
        node.remove_pod(node.run_pod("comes-and-goes", vfs=1))
        node.hca.settle()  # a real card's sysfs shows a moved netdev at once
        if number % EVERY == 0:
            print(f"{number} of {pods} ADD and DEL …", file=sys.stderr, flush=True)
            figures[f"after {number} ADD and DEL"] = resident(node)
    return figures


def resident(node: Node) -> float:
    """Read the daemon's VmRSS, in MiB."""
    process = node.daemon.process
    if process is None:
        raise RuntimeError("the daemon does not run")
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise RuntimeError("/proc/PID/status has no VmRSS")


if __name__ == "__main__":
    main()
