"""What a command does with its own process: whether it may run, where it logs, and with which status and message it ends."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from railnet.cli.closed_pipe import is_of_output
from railnet.cli.exit_status import ExitStatus
from railnet.cli.messages import say
from railnet.errors import Misconfigured, RailnetError

# What each package that is imported comes with (pyproject.toml). The image of the node lacks `kubernetes`.
_INSTALLED_BY = {
    **dict.fromkeys(("argcomplete", "kubernetes", "urllib3", "yaml"), "railnet"),
    **dict.fromkeys(("google", "grpc", "pyroute2", "pyudev"), "railnet[node]"),
    **dict.fromkeys(("aiohttp", "cryptography"), "railnet[webhook]"),
}
_INSTALLED_FOR = {("train", "cryptography"): "railnet[mpi]"}  # what brings a package that a command needs for itself


def end_with(command: str, run: Callable[[], ExitStatus]) -> NoReturn:
    """Run a command and end the process with its status, or with the message and the status of what it raises."""
    try:
        sys.exit(run())
    except Misconfigured as error:
        fail(error, ExitStatus.MISCONFIGURED)
    except PermissionError as error:
        fail(error, ExitStatus.NO_PRIVILEGE)
    except (RailnetError, OSError) as error:
        if is_of_output(error):
            raise
        fail(error, ExitStatus.FAILED)
    except KeyboardInterrupt:
        sys.exit(ExitStatus.INTERRUPTED)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _INSTALLED_BY:
            raise
        fail(_missing(command, package), ExitStatus.MISCONFIGURED)


def fail(error: Exception, status: ExitStatus) -> NoReturn:
    """Say an error, and end with a status."""
    say(error)
    sys.exit(status)


def require_root(what: str, why: str) -> None:
    """Refuse to run `what` for another user.

    Raises:
        PermissionError: the user is not root; the message has `why` root is needed.
    """
    if os.geteuid() != 0:
        raise PermissionError(f"{what} needs root: {why}")


def log_to_stderr() -> None:
    """Write the log of this process to standard error, as a container's log is."""
    import logging  # noqa: PLC0415 - most commands have no log

    from railnet.cli.log_lines import PrintableLines  # noqa: PLC0415 - as above

    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(PrintableLines())
    logging.basicConfig(level=logging.INFO, handlers=[to_stderr])


def _missing(command: str, package: str) -> Misconfigured:
    wanted = _INSTALLED_FOR.get((command, package), _INSTALLED_BY[package])
    image = "the image of the node" if wanted == "railnet[node]" else "the image of the admission helper"
    return Misconfigured(
        f"railnet {command} needs the Python package {package}, which this Python does not have: run "
        f"pip install '{wanted}', or use {image}"
    )
