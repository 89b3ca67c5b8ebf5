"""The demo: pods on two simulated nodes, pings over every network, and what is left over when all is taken down.

The nodes run in namespaces of their own (`simnode`), below a child process that gives its findings as JSON
(`scenario`). This process looks at the machine before and after, and judges; `table` renders.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from simnode.demo import scenario
from simnode.demo.scenario import Findings
from simnode.demo.table import rendered
from simnode.judge.snapshot import Snapshot, difference
from simnode.linux import libc
from vf.errors import Misconfigured

_PLUGINS = "RAILNET_CNI_PLUGINS"
_MACHINE_FOLDERS = (
    "/run",
    "/var/lib/cni",
    "/var/lib/railnet",
    "/etc/cni",
    "/etc/railnet",
    "/opt/cni",
    "/dev/infiniband",
)
_LOOKS, _LOOK_SECONDS = 5, 0.5


def run(*, as_json: bool) -> int:
    """Run the demo and print it; gives 0 if everything held, 1 if not.

    Raises:
        Misconfigured: the CNI plugins are not there.
    """
    if not os.environ.get(_PLUGINS):
        raise Misconfigured(
            f"{_PLUGINS} should be a folder with flannel, bridge, host-local, …; `scripts/demo` sets it"
        )
    libc.adopt_orphans()  # whatever the demo starts stays below this process, and can be told from others' programs
    before = _look()
    nodes = subprocess.run(
        [sys.executable, "-m", "simnode", "exec", "--", sys.executable, "-m", "simnode.demo", "--inside"],
        stdout=subprocess.PIPE,
        check=False,
    )
    if nodes.returncode:
        return nodes.returncode
    findings = Findings(**json.loads(nodes.stdout))
    findings.left_over_items += [f"machine: {item}" for item in _left_over(before)]
    findings.left_over = len(findings.left_over_items)
    print(json.dumps(asdict(findings), indent=2) if as_json else "\n".join(rendered(findings)))
    return 0 if findings.held else 1


def run_inside() -> int:
    """Run the scenario below this process, which must be inside `simnode exec`; prints findings as JSON."""
    json.dump(asdict(scenario.play(Path(os.environ[_PLUGINS]))), sys.stdout)
    return 0


def _left_over(before: Snapshot) -> list[str]:
    """Say what is new on the machine, and stays: others write files and make links meanwhile, too."""
    for _ in range(_LOOKS):
        if not difference(before, _look()):
            return []
        time.sleep(_LOOK_SECONDS)
    return difference(before, _look())


def _look() -> Snapshot:
    return scenario.snapshot(_MACHINE_FOLDERS, "--below", str(os.getpid()))
