"""`railnet doctor --bundle` shows what was found when the bundle was made, and what is missing in it."""

import json
from pathlib import Path

import pytest

from railnet import __main__ as command
from railnet.bundle import archive, bundle_findings
from railnet.bundle.archive import Bundle
from railnet.bundle.parts import BundleParts, LeftOut
from railnet.cli.exit_status import ExitStatus
from railnet.doctor import doctor_table
from railnet.doctor.finding_kinds import Finding

REPORT = json.dumps(doctor_table.as_json([Finding("no-rail", "node", "no card")])).encode()


def test_findings_have_the_node_where_they_were_made() -> None:
    bundle = Bundle(
        {},
        {"nodes/a/doctor.json": REPORT, "cluster/doctor.json": REPORT, "x.log": b""},
        (LeftOut("nodes/b", "no answer"),),
    )

    assert bundle_findings.findings(bundle) == (
        Finding("no-rail", "node", "no card"),
        Finding("no-rail", "a: node", "no card"),
        Finding("not-in-the-bundle", "nodes/b", "no answer"),
    )


@pytest.mark.parametrize(
    "report", [b"", b"[]", b"{}", b'{"findings": 1}', b'{"findings": [{}]}', b"[" * 100_000, b"\xff"]
)
def test_report_of_another_form_is_a_finding(report: bytes) -> None:
    (finding,) = bundle_findings.findings(Bundle({}, {"nodes/a/doctor.json": report}, ()))

    assert (finding.name, finding.where) == ("could-not-be-read", "nodes/a/doctor.json")


def test_finding_of_a_newer_railnet_is_shown() -> None:
    report = json.dumps({"findings": [{"name": "a-new-one", "where": "gpu", "seen": "smoke"}]}).encode()

    (finding,) = bundle_findings.findings(Bundle({}, {"nodes/a/doctor.json": report}, ()))

    assert finding == Finding("could-not-be-read", "a: gpu", "a newer Railnet found a-new-one here: smoke")


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr("sys.argv", ["railnet", "doctor", *arguments])
    with pytest.raises(SystemExit) as end:
        command.main()
    return end.value.code


@pytest.mark.parametrize(("name", "status"), [("no-rail", ExitStatus.OK), ("daemon-silent", ExitStatus.FAILED)])
def test_command_reads_a_bundle_without_root_and_ends_as_doctor_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, status: ExitStatus
) -> None:
    parts = BundleParts(1 << 20)
    parts.add_json("nodes/a/doctor.json", doctor_table.as_json([Finding(name, "node", "seen\x1b[2J")]))
    with archive.new(tmp_path / "b.tar.gz") as file:
        archive.write(file, parts, {})
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert ended(monkeypatch, "--bundle", str(tmp_path / "b.tar.gz")) == status
    out = capsys.readouterr().out
    assert "a: node" in out
    assert "\x1b" not in out


def test_file_that_is_no_bundle_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "--bundle", str(tmp_path / "b.tar.gz")) == ExitStatus.MISCONFIGURED
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_bundle_excludes_a_pod_and_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended(monkeypatch, "--bundle", "b", "--cluster") == ExitStatus.USAGE
