"""The file of `--html`: a path that cannot be is refused before the run, and what goes wrong with the file loses no report."""

import errno
import os
import select
from pathlib import Path
from typing import Any

import pytest

from railnet.__main__ import main
from railnet.apiserver.cluster_name import ClusterName
from railnet.errors import Misconfigured
from railnet.validate.findings.judgement import RailLimits, judge
from railnet.validate.pair_plan import Pair
from railnet.validate.probe.measured import Measured, parse
from railnet.validate.reports.html_file import require_writable
from railnet.validate.reports.report import Report
from tests.railnet.validate.measurements import all_pairs

_HALF_A_PAIR = '{"failed": {"measurement": "mtu", "why": "x\\ud800"}, "round_trip_seconds": {"median": 1e-5}}'  # as a probe can print


class Measures:
    """In place of `Validation`: a run that has measured these pairs."""

    def __init__(self, pairs: list[Measured]) -> None:
        self.pairs = pairs

    def __call__(self, *_: object) -> "Measures":
        return self

    def report(self) -> Report:
        judgement = judge(self.pairs, {}, RailLimits())
        return Report({}, tuple(self.pairs), judgement.findings, (), RailLimits())


def status(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["railnet", "validate", "--kubeconfig", "/absent", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    assert isinstance(code, int)
    return int(code)


def validate(pairs: list[Measured], words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command with a cluster that has measured these pairs; return its exit status."""
    monkeypatch.setattr("railnet.validate.validation.Validation", Measures(pairs))
    monkeypatch.setattr("railnet.cli.connection.connect_to_cluster", lambda *_: (None, None, ClusterName()))
    return status(words, monkeypatch)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing/x.html", "the folder {}/missing does not exist; make it, or name another"),
        ("", "{} is a folder; name a file in it, such as {}/validate.html"),
        ("file/x.html", "Not a directory; name a file in a folder in which you may write"),
        ("x" * 256, "File name too long"),
        ("lost", "the folder {}/nowhere does not exist"),
    ],
)
def test_path_that_cannot_be_is_refused_before_the_cluster_is_asked(
    tmp_path: Path, name: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere" / "x.html")
    code = status(["--html", str(tmp_path / name)], monkeypatch)

    assert (code, words.format(tmp_path, tmp_path) in capsys.readouterr().err) == (3, True)


@pytest.mark.parametrize("function", ["pathlib.Path.open", "pathlib.Path.is_dir"])
def test_folder_that_the_user_may_not_use_is_refused(
    tmp_path: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Any:  # root may write anywhere
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(function, refused)
    with pytest.raises(Misconfigured, match="Permission denied; name a file in a folder"):
        require_writable(tmp_path / "x.html")


def test_run_that_comes_to_no_report_changes_no_file_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "before.html").write_text("before")
    codes = [status(["--html", str(tmp_path / name)], monkeypatch) for name in ("before.html", "new.html")]

    assert (codes, capsys.readouterr().err.count("/absent")) == ([3, 3], 2)  # there is no kubeconfig
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"before.html": "before"}


def test_reader_of_a_pipe_does_not_see_that_it_was_tried(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        require_writable(tmp_path / "pipe")
        events = select.poll()
        events.register(reader)

        assert events.poll(0) == []
    finally:
        os.close(reader)


@pytest.mark.parametrize("form", [[], ["-o", "json"], ["-o", "yaml"], ["-o", "ctrf"]])
def test_half_a_surrogate_pair_of_a_pod_is_in_the_report_and_in_the_page_by_its_number(
    tmp_path: Path, form: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = parse(Pair(0, "a", "b"), _HALF_A_PAIR)
    code = validate([pair], [*form, "--html", str(tmp_path / "x.html")], monkeypatch)

    assert (code, "x\\ud800" in capsys.readouterr().out.lower()) == (1, True)
    page = (tmp_path / "x.html").read_text()
    assert ("largest packet: x\\ud800" in page, page.endswith("</html>\n")) == (True, True)


@pytest.mark.parametrize(("slow", "code"), [(False, 6), (True, 1)])
def test_page_that_cannot_be_written_is_said_below_the_report_and_is_no_finding(
    slow: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = all_pairs(0, "abc")
    pairs[0] = pairs[0]._replace(gbits=1.0 if slow else 90.0)

    assert validate(pairs, ["--html", "/dev/full"], monkeypatch) == code
    printed = capsys.readouterr()
    assert ("3 pairs on 1 rail of 3 nodes" in printed.out, "1 finding" in printed.out) == (True, slow)
    assert printed.err == "railnet: the page /dev/full is not written, or not whole: No space left on device\n"


def test_page_is_written_though_the_report_cannot_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("railnet.cli.output.Output.show", interrupted)

    assert validate(all_pairs(0, "abc"), ["--html", str(tmp_path / "x.html")], monkeypatch) == 130
    assert "3 pairs on 1 rail of 3 nodes" in (tmp_path / "x.html").read_text()
