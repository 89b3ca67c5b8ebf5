"""The program of the demo: start the scenario, compare the machine before and after it, and print the result.

The nodes run in separate namespaces below a child process, which prints its findings as JSON (`scenario`). `table`
renders the findings.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from railnet.errors import Misconfigured
from simnode.demo import machine, scenario
from simnode.demo.scenario import Findings
from simnode.demo.table import rendered
from simnode.linux import libc

_PLUGINS = "RAILNET_CNI_PLUGINS"


def run(*, as_json: bool) -> int:
    """Run the demo and print its result; return 0 if all checks passed and nothing is left over, else 1.

    Raises:
        Misconfigured: the folder of the CNI plugins is not configured.
    """
    if not os.environ.get(_PLUGINS):
        raise Misconfigured(
            f"the demo has no CNI plugins, because {_PLUGINS} is not set: run `scripts/demo`, or set it to a folder "
            "with flannel, bridge, host-local and portmap"
        )
    libc.adopt_orphans()  # all processes of the demo stay below this process, so that other programs do not count
    before = machine.look()
    nodes = subprocess.run(
        [sys.executable, "-m", "simnode", "exec", "--", sys.executable, "-m", "simnode.demo", "--inside"],
        stdout=subprocess.PIPE,
        check=False,
    )
    if nodes.returncode:
        return nodes.returncode
    findings = Findings(**json.loads(nodes.stdout))
    findings.left_over_items += [f"machine: {item}" for item in machine.left_over(before)]
    findings.left_over = len(findings.left_over_items)
    print(json.dumps(asdict(findings), indent=2) if as_json else "\n".join(rendered(findings)))
    return 0 if findings.held else 1


def run_inside() -> int:
    """Run the scenario in this process, which must be inside `simnode exec`, and print its findings as JSON."""
    json.dump(asdict(scenario.play(Path(os.environ[_PLUGINS]))), sys.stdout)
    return 0
