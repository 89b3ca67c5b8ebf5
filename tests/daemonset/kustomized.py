"""The documents that `kubectl apply -k` sends, rendered by the kubectl that scripts/setup downloads."""

import functools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [
    "daemonset",
    *sorted(path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("overlays/**/kustomization.yaml")),
]
"""The folders that can be applied by themselves, and the bases of these."""


@functools.cache
def kustomized(folder: Path | str) -> list[dict[str, Any]]:
    """Return a folder's documents, which callers must not change."""
    kubectl = shutil.which("kubectl")
    assert kubectl is not None
    done = subprocess.run([kubectl, "kustomize", ROOT / folder], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))
