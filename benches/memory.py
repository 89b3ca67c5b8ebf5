"""Measure the memory of the node daemon and of its supervisor, with every option on; and what each import costs.

Run by `scripts/bench memory`, inside a simulated node: 8 PFs with 9 VFs each, the real flannel chain, an API server. The points are the start, 64
attached VFs, and 1,000 ADD and DEL beside them, with a scrape of the metrics for each 10. The daemon has bytecode without docstrings, as in the image.

Of the daemon, the figure is VmRSS: the kernel's own, of the whole process with its libraries. Of the supervisor, it is what no other process
has: all else is the interpreter's code, which the daemon's figure has, too. Of an import, it is VmRSS after it less VmRSS before it, in one new
interpreter that does all of them in the daemon's order: what one library imports of another is counted for the first of them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from railnet.apiserver.service_account import FOLDER
from railnet.daemon.process import late_imports
from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.pf_properties import SimulatedPf
from simnode.kubernetes.api_server import ApiServer
from simnode.node import Node
from simnode.preinstalled_files import CONFIGURATION

RAILS = 8
VFS = 9  # on each PF: eight for the pods that stay, one for those that come and go
PODS = 1000
EVERY = 250
SCRAPE_EVERY = 10
STARTED_SECONDS = 5.0  # after one second all ports are read (railnet/daemon/resync/port_watch.py)
REST_SECONDS = 2.0  # messages to the API server
NODE = "bench"
IMPORTS = {
    "asyncio, with ssl": "asyncio",
    "what its program needs first": "railnet.daemon_process",
    "grpc": "grpc.aio",
    "google.protobuf, and the messages of kubelet and runtime": "railnet.kubelet.api.podresources_pb2_grpc",
    "pyudev, with ctypes": "pyudev",
    "http.client, with email": "http.client",
    "all other modules of the daemon": "railnet.daemon.composition",
    "where the PF's link names VFs: pyroute2's messages": "railnet.kernel.netlink.minimal_pyroute2",
    "at the first use: protobuf's messages in Python": "google.protobuf.internal.python_message",
    "at the first use: the others of late_imports": " ".join(late_imports.MODULES),
    "not imported: yaml": "yaml",
    "not imported: the command line": "railnet.__main__",
    "not imported: the rest of pyroute2": "pyroute2",
}
FIRST = ("the interpreter", "typing and threading, for late_imports")
IMPORT_ROUNDS = 5
_TELL_IMPORTS = """
import sys, time
def resident():
    with open("/proc/self/status") as status:
        return int(next(line.split()[1] for line in status if line.startswith("VmRSS:")))
before = resident()
print(before, 0.0)
from railnet.daemon.process import late_imports
late_imports.postpone()
print(resident() - before, time.process_time() * 1000)
for name in sys.argv[1:]:
    before, began = resident(), time.process_time()
    for module in name.split():
        if module in late_imports.MODULES:
            sys.modules.pop(module)
        __import__(module)
    print(resident() - before, (time.process_time() - began) * 1000)
"""
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
    plugins = Path(os.environ["RAILNET_CNI_PLUGINS"])
    with tempfile.TemporaryDirectory() as bytecode, ApiServer(FOLDER) as server, Node(plugins, PFS, VFS) as node:
        environment = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode, "PYTHONOPTIMIZE": "2"}
        imports = of_imports(environment)
        switch_all_on(node, server, environment)
        node.install()
        node.start_daemon()  # the first one compiles
        time.sleep(STARTED_SECONDS)
        node.stop_daemon()
        node.start_daemon()
        figures = measure(node, arguments.pods)
    if arguments.json:
        print(json.dumps({"imports": imports, **figures}))
        return
    print(f"{'MiB':<60}{'daemon':>12}{'supervisor':>12}{'both':>8}")
    for name, (daemon, supervisor) in figures.items():
        print(f"{name:<60}{daemon:>12.1f}{supervisor:>12.1f}{daemon + supervisor:>8.1f}")
    print(f"\n{'imported, in this order':<60}{'MiB':>12}{'processor ms':>14}")
    for name, (mebibytes, milliseconds) in imports.items():
        print(f"{name:<60}{mebibytes:>12.1f}{milliseconds:>14.0f}")


def of_imports(environment: dict[str, str]) -> dict[str, tuple[float, float]]:
    """Return MiB and milliseconds of a processor of each import, medians of new interpreters; the first figure is of the interpreter."""
    command = [sys.executable, "-c", _TELL_IMPORTS, *IMPORTS.values()]
    rounds = []
    for _ in range(IMPORT_ROUNDS + 1):
        done = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
        rounds.append([[float(number) for number in line.split()] for line in done.stdout.splitlines()])
    medians = [
        [statistics.median(figure) for figure in zip(*row, strict=True)] for row in zip(*rounds[1:], strict=True)
    ]
    return {
        name: (round(kibibytes / 1024, 1), round(milliseconds))
        for name, (kibibytes, milliseconds) in zip((*FIRST, *IMPORTS), medians, strict=True)
    }


def switch_all_on(node: Node, server: ApiServer, environment: dict[str, str]) -> None:
    """Have the daemon publish all that it can, under its supervisor."""
    document = json.loads(CONFIGURATION.read_text())
    document["publish"] = {
        "topologyLabels": True,
        "railsCondition": True,
        "railsTaint": True,
    }  # the others are on by default
    CONFIGURATION.write_text(json.dumps(document))
    server.nodes["", NODE] = {"metadata": {"name": NODE, "uid": NODE, "labels": {}}, "spec": {}, "status": {}}
    node.daemon.environment = {**server.environment, "NODE_NAME": NODE, **environment}
    node.daemon.supervised = True


def measure(node: Node, pods: int) -> dict[str, tuple[float, float]]:
    """Return MiB of daemon and supervisor at each point."""
    time.sleep(STARTED_SECONDS)
    figures = {"serving": both(node)}
    for number in range(RAILS):
        node.run_pod(f"stays-{number}", vfs=RAILS)
    scrape()
    time.sleep(REST_SECONDS)
    figures["64 VFs attached"] = both(node)
    for number in range(1, pods + 1):
        node.remove_pod(node.run_pod("comes-and-goes", vfs=1))
        node.hca.settle()  # a real card's sysfs shows a moved netdev at once
        if number % SCRAPE_EVERY == 0:
            scrape()
        if number % EVERY == 0:
            print(f"{number} of {pods} ADD and DEL …", file=sys.stderr, flush=True)
            figures[f"after {number} ADD and DEL"] = both(node)
    return figures


def scrape() -> None:
    """Ask for the metrics, as Prometheus does."""
    with urllib.request.urlopen("http://127.0.0.1:9474/metrics", timeout=10) as answer:
        answer.read()


def both(node: Node) -> tuple[float, float]:
    """Read what the daemon holds, and what its supervisor holds beside it, in MiB."""
    supervisor, daemon = node.daemon.process, node.daemon.daemon_pid()
    if supervisor is None or daemon is None:
        raise RuntimeError("the daemon does not run")
    alone = sum(kibibytes(f"/proc/{supervisor.pid}/smaps_rollup", f"Private_{kind}:") for kind in ("Clean", "Dirty"))
    return round(kibibytes(f"/proc/{daemon}/status", "VmRSS:") / 1024, 1), round(alone / 1024, 1)


def kibibytes(path: str, name: str) -> int:
    """Read one figure of a file of /proc."""
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise RuntimeError(f"{path} has no {name}")


if __name__ == "__main__":
    main()
