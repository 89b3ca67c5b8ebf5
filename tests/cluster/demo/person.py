"""What the demo gives a person who plays with its cluster: a kubeconfig, and the programs kubectl, helm and railnet."""

import base64
import json
import os
import shlex
import sys
from pathlib import Path

from tests.cluster import images
from tests.cluster.control_plane import ADMIN, CERTIFICATE
from tests.cluster.manifests import ROOT

KUBECONFIG, PROGRAMS = "kubeconfig", "bin"
"""Names in the demo's folder."""
_CACHE = "kubectl-cache"


def write(folder: Path, port: int) -> None:
    """Write all of it; the API server is reached by a port of the machine."""
    _write_kubeconfig(folder / KUBECONFIG, port)
    programs = folder / PROGRAMS
    programs.mkdir()
    for name in ("kubectl", "helm"):
        (programs / name).symlink_to(images.program(name))
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "railnet"]
    (programs / "railnet").write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    (programs / "railnet").chmod(0o755)


def line(folder: Path) -> str:
    """Return the line for a shell by which its kubectl, helm and railnet use the cluster."""
    variables = {"KUBECONFIG": folder / KUBECONFIG, "KUBECACHEDIR": folder / _CACHE, "PATH": folder / PROGRAMS}
    return f"export {' '.join(f'{name}={shlex.quote(str(path))}' for name, path in variables.items())}:$PATH"


def _write_kubeconfig(path: Path, port: int) -> None:
    """Write the administrator's own; the API server's certificate is for `localhost`, too (k8s.io/apiserver, pkg/server/options/serving.go)."""
    content = json.loads(ADMIN.read_text())
    authority = base64.b64encode(CERTIFICATE.read_bytes()).decode()
    content["clusters"][0]["cluster"] = {
        "server": f"https://localhost:{port}",
        "certificate-authority-data": authority,
    }
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=2)
