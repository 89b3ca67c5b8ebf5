"""The program that the supervisor starts: the daemon, without the parser of the command line.

The parser, with the options of all commands, would take 1.2 MiB of a process that lives as long as its node does. So
`railnet node` parses its command line, and then becomes the supervisor of this program, which gets the options as words.
"""

import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

from railnet.cli.closed_pipe import ended_by_a_closed_pipe
from railnet.cli.exit_status import ExitStatus
from railnet.cli.process import end_with, log_to_stderr, require_root

CHANGES = "it changes network namespaces and links"
_STAY = "stay"


class DaemonOptions(NamedTuple):
    """What the command line asks of a daemon.

    Attributes:
        command: `node`, or `uninstall` for the daemon that removes Railnet from its node.
        configuration: the node's configuration file.
        health_port: where it answers health requests.
        stay: whether `uninstall` goes on answering them when all is removed.
    """

    command: str
    configuration: Path
    health_port: int
    stay: bool = False

    def words(self) -> list[str]:
        """Return the options as `main` reads them; the supervisor adds two words."""
        return [self.command, str(self.configuration), str(self.health_port), *([_STAY] if self.stay else [])]


def main() -> None:
    """Run the daemon that a supervisor has started, and exit with its status."""
    *words, beats, restarts = sys.argv[1:]
    command, configuration, health_port, *stay = words
    options = DaemonOptions(command, Path(configuration), int(health_port), stay=stay == [_STAY])
    with ended_by_a_closed_pipe():
        end_with(command, partial(serve, options, int(beats), int(restarts)))


def serve(options: DaemonOptions, beats: int | None = None, restarts: int = 0) -> ExitStatus:
    """Be the daemon until it has ended; `beats` and `restarts` are as for `heartbeat.run` and `composition.run`.

    Raises:
        Misconfigured, OSError: as `composition.run`. PermissionError: the user is not root.
    """
    # What becomes the supervisor imports this module, and needs none of these.
    from railnet.daemon.process import late_imports  # noqa: PLC0415

    late_imports.postpone()  # before the libraries that import these modules
    from railnet import configuration  # noqa: PLC0415
    from railnet.daemon import composition  # noqa: PLC0415
    from railnet.daemon.process import heartbeat  # noqa: PLC0415
    from railnet.kernel.processes.forked_child import in_child  # noqa: PLC0415

    require_root(f"railnet {options.command}", CHANGES)
    log_to_stderr()
    load = partial(configuration.load, options.configuration)
    loaded = load() if beats is None else in_child(load)  # PyYAML takes 0.9 MiB. A debugger follows one process
    if options.command == "node":
        heartbeat.run(composition.run(loaded, options.health_port, restarts), beats)
        return ExitStatus.OK
    uninstalling = composition.uninstall(loaded, options.health_port, restarts, stay=options.stay)
    return ExitStatus.of(well=heartbeat.run(uninstalling, beats))


if __name__ == "__main__":
    main()
