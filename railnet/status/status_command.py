"""`railnet status`: asks the daemon of this node what it knows, and shows it."""

import json
import socket
from pathlib import Path
from typing import Any

from cni.host import frames
from cni.host.daemon import SOCKET
from railnet.cli.output import Output
from railnet.status.status_table import WORDS, rendered

_SECONDS = 5.0  # the daemon answers from memory; a daemon that takes longer hangs
_WHERE_TO_LOOK = "look at the railnet DaemonSet's pod on this node; running pods keep their rails meanwhile"


class Unreachable(Exception):
    """The daemon does not answer; the message says where to look."""


def show(output: Output, path: Path = Path(SOCKET)) -> bool:
    """Print it; return whether the node is served.

    Raises:
        Unreachable: no daemon answers.
    """
    told = ask(path)
    output.show(told, rendered(told), WORDS)
    return not told["reasons"]


def ask(path: Path, seconds: float = _SECONDS) -> dict[str, Any]:
    """Ask the daemon on a socket.

    Raises:
        Unreachable: it is absent, says nothing within these seconds, or something that is no answer.
        PermissionError: the caller may not ask.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            connection.sendall(frames.frame(frames.QUERY))
            kind, answer = frames.receive(connection.recv)
    except PermissionError:
        raise
    except (OSError, EOFError, frames.FrameError) as error:
        why = getattr(error, "strerror", None) or error
        raise Unreachable(f"the daemon does not answer on {path}: {why}; {_WHERE_TO_LOOK}") from None
    if kind != frames.ANSWER:
        raise Unreachable(f"frame {kind} came from {path} in place of an answer: finish the upgrade of Railnet")
    told: dict[str, Any] = json.loads(answer)
    return told
