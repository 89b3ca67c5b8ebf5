"""Measure a restart of the node daemon with 64 VFs attached: from its exec to the first ADD done, and to ListAndWatch sent.

Run by `scripts/bench restart`, inside a simulated node: 8 PFs with 9 VFs each, the real flannel chain. The daemon is killed; a
pod with a rail, admitted before, has its ADD begun as the next one is executed. kubelet is told of a socket by inotify, as the
real one is.
"""

import argparse
import json
import os
import statistics
import threading
import time
import uuid
from pathlib import Path

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.pf_properties import SimulatedPf
from simnode.kubernetes.kubelet import PodIdentity
from simnode.node import RESOURCE, Node

RAILS = 8
VFS = 9  # on each PF: eight for the pods that stay, one for the pod that comes
ROUNDS = 9
_PATIENCE_SECONDS = 120.0  # for a machine under load
PFS = tuple(
    SimulatedPf(PciAddress(0, 3 + 0x10 * rail, 0, 0), Guid(0xB8599F0300F98F00 + 0x10 * rail), f"ibs{rail}")
    for rail in range(RAILS)
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench restart", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"restarts ({ROUNDS})")
    arguments = parser.parse_args()
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), PFS, VFS) as node:
        node.install()
        node.start_daemon(wait=False)
        node.kubelet.wait_for_devices(RESOURCE, RAILS * VFS, _PATIENCE_SECONDS)
        stay = [node.run_pod(f"stays-{number}", vfs=RAILS) for number in range(RAILS)]
        rounds = [restart(node) for _ in range(arguments.rounds)]
        for pod in stay:
            node.remove_pod(pod)
    figures = {moment: [times[moment] for times in rounds] for moment in rounds[0]}
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"{arguments.rounds} restarts with {RAILS * RAILS} VFs attached; ms from exec, median (least to most)")
    for moment, times in figures.items():
        print(f"{moment:<24}{statistics.median(times):>8.0f} ({min(times):.0f} to {max(times):.0f})")


def restart(node: Node) -> dict[str, float]:
    """Kill the daemon and start another; give the milliseconds from its exec to each moment."""
    identity = PodIdentity("comes", "default", str(uuid.uuid4()))
    node.kubelet.allocate(identity, RESOURCE, 1)
    sandbox = node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)
    node.kill_daemon()
    node.kubelet.wait_for_devices(RESOURCE, 0, _PATIENCE_SECONDS)
    times: dict[str, float] = {}
    began = time.perf_counter()

    def watch() -> None:
        node.kubelet.wait_for_devices(RESOURCE, RAILS * VFS, _PATIENCE_SECONDS)
        times["ListAndWatch received"] = (time.perf_counter() - began) * 1000

    watching = threading.Thread(target=watch)
    watching.start()
    node.daemon.start()
    node.runtime.add(sandbox)
    times["first ADD done"] = (time.perf_counter() - began) * 1000
    watching.join()
    node.kubelet.remove(identity)
    node.runtime.tear_down(sandbox)
    node.hca.settle()
    return {"both": max(times.values()), **times}


if __name__ == "__main__":
    main()
