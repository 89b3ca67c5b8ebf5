"""kubectl, with its output parsed."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SECONDS = 400  # longer than kubectl's own time limits


class Kubectl:
    """The cluster's administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        """Have the rights of a file; what kubectl keeps of the API server's resources is beside the file, not in the user's home."""
        self._options = (f"--kubeconfig={kubeconfig}", f"--cache-dir={kubeconfig.parent / 'kubectl-cache'}")

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Give what kubectl prints.

        Raises:
            subprocess.CalledProcessError: it failed; its stderr is in the note.
        """
        command = ["kubectl", *self._options, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=_SECONDS)
        if done.returncode:
            error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
            error.add_note(done.stdout + done.stderr)
            raise error
        return done.stdout

    def answers(self, *arguments: str) -> bool:
        """Tell whether kubectl succeeds."""
        try:
            self.run(*arguments)
        except subprocess.CalledProcessError:
            return False
        return True

    def get(self, *arguments: str) -> Any:
        """Give an object, or a list of objects."""
        found = json.loads(self.run("get", "--output=json", *arguments))
        return found["items"] if found["kind"] == "List" else found

    def apply(self, *objects: dict[str, Any]) -> None:
        self.run("apply", "--filename=-", stdin=_as_list(objects))

    def delete(self, *objects: dict[str, Any]) -> None:
        """Delete objects, of which some may be gone already; returns when the API server has forgotten all of them."""
        self.run("delete", "--filename=-", "--ignore-not-found", stdin=_as_list(objects))

    def events(self, name: str) -> list[dict[str, Any]]:
        """Give the events about an object of the default namespace."""
        found: list[dict[str, Any]] = self.get("events", f"--field-selector=involvedObject.name={name}")
        return found


def _as_list(objects: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
