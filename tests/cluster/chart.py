"""The chart: values of its features, and what it renders."""

import functools
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.manifests import NAMESPACE, ROOT

CHART = ROOT / "charts/railnet"
RELEASE = "railnet"
EXAMPLES = tuple(sorted((CHART / "examples").glob("*.yaml")))
"""Files of values, of which each is beside the ones before it."""

Values = Mapping[str, Any] | Path
"""Values of the chart, or a file of them."""

ENABLED = {"enabled": True}
WEBHOOK = {"webhook": ENABLED}
CONTROLLERS = {"controllers": ENABLED}
GANGS = {**WEBHOOK, **CONTROLLERS, "gangs": ENABLED}

_SECONDS = 60


def copy_for_simulated_cards(folder: Path, sysfs: Path) -> None:
    """Copy the chart to a new folder, with templates whose daemon sees the tree that stands for a node's cards, and whose pods end soon."""
    shutil.copytree(CHART, folder)
    mount, volumes = "        - {name: sys, mountPath: /sys}\n", "      volumes:\n"
    node = {
        "terminationGracePeriodSeconds: 100": "terminationGracePeriodSeconds: 10",
        mount: f"{mount}        - {{name: simulated-sys, mountPath: {sysfs}}}\n",
        volumes: f"{volumes}      - {{name: simulated-sys, hostPath: {{path: {sysfs}, type: Directory}}}}\n",
    }
    replica = {"terminationGracePeriodSeconds: 30": "terminationGracePeriodSeconds: 1"}
    _replace(folder / "templates/node/daemonset.yaml", node)
    _replace(folder / "templates/webhook/deployment.yaml", replica)
    _replace(folder / "templates/controllers/deployment.yaml", replica)


def _replace(path: Path, texts: Mapping[str, str]) -> None:
    text = path.read_text()
    for old, new in texts.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text)


def options(*values: Values) -> list[str]:
    """Return Helm's options for these values, of which later ones win; files come first."""
    return [
        f"--values={one}" if isinstance(one, Path) else f"--set-json={json.dumps(one)}"
        for one in sorted(values, key=lambda one: not isinstance(one, Path))
    ]


def render(*values: Values) -> list[dict[str, Any]]:
    """Return the objects of the chart with these values, without its hooks."""
    return [one for one in yaml.safe_load_all(_rendered(*options(*values))) if one is not None]


@functools.cache
def _rendered(*values: str) -> str:
    """Return what Helm prints; most tests of the tier `cluster` have the same values."""
    command = ["helm", "template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", "--no-hooks", *values]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout
