"""The names by which a person starts the program: its own, and that of a plugin of kubectl."""

from pathlib import PurePath

RAILNET, KUBECTL_PLUGIN = "railnet", "kubectl-railnet"  # the scripts of pyproject.toml


def program_name(started_as: str) -> str:
    """Return what usage lines call the program; kubectl runs the file `kubectl-railnet` for `kubectl railnet`."""
    return KUBECTL_PLUGIN.replace("-", " ") if PurePath(started_as).name == KUBECTL_PLUGIN else RAILNET
