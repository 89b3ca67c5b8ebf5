"""The documents that `kubectl apply -k` sends, rendered by the kubectl that scripts/setup downloads."""

import functools
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [
    "daemonset",
    *sorted(
        path.parent.relative_to(ROOT).as_posix()
        for path in ROOT.glob("overlays/**/kustomization.yaml")
        if yaml.load(path.read_text(), yaml.CSafeLoader)["kind"] == "Kustomization"
    ),
]
"""The folders that can be applied by themselves, and those that they contain."""


def kustomized(folder: Path | str) -> list[dict[str, Any]]:
    """Return a folder's documents, which callers must not change."""
    return rendered(folder)[0]


@functools.cache
def rendered(folder: Path | str) -> tuple[list[dict[str, Any]], str]:
    """Return a folder's documents, which callers must not change, and kubectl's warnings."""
    done = subprocess.run(["kubectl", "kustomize", ROOT / folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader)), done.stderr
