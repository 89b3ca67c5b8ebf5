"""`railnet validate --publish`: what it leaves, and what it says if it cannot."""

import pytest

from railnet.apiserver import rail_reach
from railnet.apiserver.cluster_name import ClusterName
from railnet.fabric.published_reach import NAME, NAMESPACE
from railnet.validate.findings.judgement import RailLimits
from railnet.validate.findings.rail_reach import RailReach
from railnet.validate.reports.report import Report
from tests.railnet.train.memory_api_server import MemoryApiServer, status
from tests.railnet.validate.measurements import all_pairs
from tests.railnet.validate.reports.test_html_file import status as exit_status

KEY = ("configmaps", NAMESPACE, NAME)
APART = (RailReach(0, 1, False, "No route"), RailReach(0, 2, None, "no two nodes"), RailReach(1, 2, True))


def validate(server: MemoryApiServer, reach: tuple[RailReach, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command on a cluster whose rails are sound and have this reach; return its exit status."""
    report = Report({}, tuple(all_pairs(0, "abc")), (), (), RailLimits(), reach=reach)

    class Measures:
        def __init__(self, *_: object) -> None: ...

        def report(self) -> Report:
            return report

    monkeypatch.setattr("railnet.validate.validation.Validation", Measures)
    monkeypatch.setattr("railnet.cli.connection.connect_to_cluster", lambda *_: (server.api, None, ClusterName()))
    return exit_status(["--publish"], monkeypatch)


@pytest.fixture
def server() -> MemoryApiServer:
    made = MemoryApiServer()
    made.add("namespaces", {"metadata": {"name": NAMESPACE}})
    return made


def test_what_is_known_is_published_and_replaces_what_was(
    server: MemoryApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate(server, (RailReach(0, 1, True), RailReach(0, 7, True)), monkeypatch) == 0
    assert validate(server, APART, monkeypatch) == 0

    assert "published in ConfigMap railnet/railnet-rail-reach" in capsys.readouterr().err
    assert rail_reach.read(server.api).reach == {frozenset({0, 1}): False, frozenset({1, 2}): True}


def test_run_that_has_found_nothing_out_leaves_what_is_published(
    server: MemoryApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    validate(server, APART, monkeypatch)
    before = server.objects[KEY]
    capsys.readouterr()

    assert validate(server, (), monkeypatch) == 0
    assert "nothing is published: this run has not found out" in capsys.readouterr().err
    assert server.objects[KEY] == before


def test_user_who_may_not_publish_has_the_report_and_status_6(
    server: MemoryApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.before = lambda request: status(403, "no") if request.about.resource == "configmaps" else None

    assert validate(server, APART, monkeypatch) == 6
    shown = capsys.readouterr()
    assert "rails 0 and 1 do not reach each other" in shown.out
    assert "which rails reach each other is not published: " in shown.err
    assert "403" in shown.err
