"""Completion of command lines by a shell. `argcomplete` is imported where a shell asks, and nowhere else."""

import argparse
import os

from railnet.cli.program_name import KUBECTL_PLUGIN, RAILNET

SHELLS = ("bash", "zsh", "fish")
_ASKED = "_ARGCOMPLETE"  # what the script of a shell sets


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks what may follow, and end; return otherwise."""
    if _ASKED in os.environ:
        import argcomplete  # noqa: PLC0415 - 20 ms, which no command needs

        argcomplete.autocomplete(parser)


def script(shell: str) -> str:
    """Return what a shell runs once, so that it asks."""
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - as above

    return shellcode([RAILNET, KUBECTL_PLUGIN], shell=shell)
