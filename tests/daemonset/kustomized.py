"""The documents that `kubectl apply -k` sends, rendered by the two kubectls that scripts/setup downloads: 1.20 and a newer one."""

import functools
import os
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
FOR_OLD_KUBECTL = [
    "daemonset",
    "overlays/admission-1.20",
    "overlays/controllers-1.20",
    "overlays/controllers-clean-up-1.20",
    "overlays/controllers-clean-up/rights",
    "overlays/controllers-sticky-1.20",
    "overlays/controllers-sticky/rights",
    "overlays/dns-autoscaler",
    "overlays/host-network-1.20",
    "overlays/priorities",
    "overlays/uninstall-1.20",
]
"""What kubectl up to 1.20 can apply, with the kustomize 2.0.3 that is in it."""


def kustomized(folder: Path | str) -> list[dict[str, Any]]:
    """Return a folder's documents, which callers must not change."""
    return rendered_by("kubectl" if str(folder) in FOR_OLD_KUBECTL else os.environ["RAILNET_NEWER_KUBECTL"], folder)[0]


@functools.cache
def rendered_by(kubectl: str, folder: Path | str) -> tuple[list[dict[str, Any]], str]:
    """Return a folder's documents as one kubectl renders them, which callers must not change, and its warnings."""
    done = subprocess.run([kubectl, "kustomize", ROOT / folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader)), done.stderr
