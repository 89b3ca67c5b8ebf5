"""What `kubectl apply -k` would send, rendered by the kubectl that scripts/setup fetches."""

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
"""Each that can be applied by itself, or is a base of one."""


@functools.cache
def kustomized(folder: Path | str) -> list[dict[str, Any]]:
    """Give the documents, which nobody changes."""
    kubectl = shutil.which("kubectl")
    assert kubectl is not None
    done = subprocess.run([kubectl, "kustomize", ROOT / folder], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))
