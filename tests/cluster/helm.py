"""Helm itself: the release of the chart in a cluster."""

import os
import subprocess
from pathlib import Path

from tests.cluster.chart import CHART, RELEASE, Values, options
from tests.cluster.ground import RUN
from tests.cluster.manifests import NAMESPACE

_SECONDS = 600
_FOLDERS = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR")  # none is the machine's own


class Helm:
    """The release `railnet`, each step by one command of the cluster's administrator."""

    def __init__(self, kubeconfig: Path, chart: Path = CHART) -> None:
        self._kubeconfig, self._chart = kubeconfig, chart

    def upgrade(self, *values: Values, more: tuple[str, ...] = ()) -> str:
        """Install the chart or upgrade to it, with these values, of which later ones win, and more options."""
        return self._run("upgrade", "--install", RELEASE, str(self._chart), *options(*values), *more)

    def rollback(self) -> str:
        """Go back to the release before."""
        return self._run("rollback", RELEASE)

    def uninstall(self, *more: str) -> str:
        """Uninstall, with more options."""
        return self._run("uninstall", RELEASE, *more)

    def _run(self, *arguments: str) -> str:
        """Give what Helm prints.

        Raises:
            subprocess.CalledProcessError: it failed; its output is in the note.
        """
        command = ["helm", f"--kubeconfig={self._kubeconfig}", f"--namespace={NAMESPACE}", *arguments]
        env = {**os.environ, **{name: str(RUN / "helm" / name.lower()) for name in _FOLDERS}}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS, env=env)
        if done.returncode:
            error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
            error.add_note(done.stdout + done.stderr)
            raise error
        return done.stdout
