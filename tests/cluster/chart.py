"""The chart: values of its features, and what it renders."""

import functools
import json
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
