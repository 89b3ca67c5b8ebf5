"""The supervisor's daemon reads the options that the command line has written."""

from pathlib import Path

import pytest

from railnet import daemon_process
from railnet.cli.exit_status import ExitStatus
from railnet.daemon_process import DaemonOptions

FILE = Path("/etc/railnet/node.yaml")


@pytest.mark.parametrize(
    "options",
    [
        DaemonOptions("node", FILE, 9474),
        DaemonOptions("uninstall", FILE, 1, stay=True),
        DaemonOptions("uninstall", Path("a file"), 1),
    ],
    ids=["node", "uninstall and stay", "uninstall"],
)
def test_options_are_read_as_they_were_written(options: DaemonOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[DaemonOptions, int, int]] = []

    def serve(*arguments: object) -> ExitStatus:
        served.append(arguments)  # type: ignore[arg-type]
        return ExitStatus.FAILED

    monkeypatch.setattr(daemon_process, "serve", serve)
    monkeypatch.setattr("sys.argv", ["daemon_process.py", *options.words(), "5", "3"])

    with pytest.raises(SystemExit) as end:
        daemon_process.main()

    assert end.value.code == ExitStatus.FAILED
    assert served == [(options, 5, 3)]
