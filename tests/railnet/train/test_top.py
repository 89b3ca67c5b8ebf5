"""`railnet train top`: the view, its JSON, and that it follows changes."""

import io
import json
import sys
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from railnet.apiserver.client import RequestFailed
from railnet.apiserver.request import Request
from railnet.cli.output import Form, Output
from railnet.fabric.published_reach import KEY, NAME, NAMESPACE, PublishedReach, config_map
from railnet.jobs.cluster_usage import NodeRoom, PodUse, Usage, usage
from railnet.jobs.gang.overview import GangWait
from railnet.objects.network_status import ANNOTATION
from railnet.train import top as top_module
from railnet.train import watched_reach
from railnet.train.screen import Screen
from railnet.train.top import NotAllowed, look, top, watch
from railnet.train.watched_reach import WatchedReach
from tests.railnet.train.jobs import RUNNING, job, pods
from tests.railnet.train.memory_api_server import MemoryApiServer, status
from tests.waiting import until

TABLE, JSON = Output(), Output(Form.JSON)

SECONDS = 60.0
RAILS = frozenset({"rdma/ib_vf"})
ALLOCATABLE = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4", "rdma/ib_vf": "8"}
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: not helpful.",
        }
    ],
}


def node(name: str, ready: str = "True") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": ALLOCATABLE, "conditions": conditions}}


def with_rail(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    resources = {key: {**value, "rdma/ib_vf": "1"} for key, value in container["resources"].items()}
    return {**pod, "spec": {**pod["spec"], "containers": [{**container, "resources": resources}]}}


@pytest.fixture
def server() -> MemoryApiServer:
    found = MemoryApiServer()
    for one in (node("a"), node("b"), node("c", "Unknown")):
        found.add("nodes", one)
    for one in pods(job(), RUNNING)[:4]:
        found.add("pods", with_rail(one))
    found.add("pods", with_rail(pods(job(), UNSCHEDULABLE, "")[4]))
    system = {"name": "dns", "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}}}
    found.add(
        "pods",
        {
            "metadata": {"name": "dns", "namespace": "kube-system"},
            "spec": {"nodeName": "b", "containers": [system]},
            "status": RUNNING,
        },
    )
    return found


VIEW = """\
NODES              CPU  MEMORY  GPUS  RAILS
2 of 3 take pods    16   128Gi     8     16
requested          2.1  16.1Gi     2      4
free              13.9   112Gi     6     12

NAMESPACE    JOB    PODS  RUNNING    CPU    MEMORY  GPUS  RAILS
kube-system            1        1    0.1      70Mi     0      0
mnist                  5        4  2+0.5  16Gi+4Gi   2+1    4+1
             mnist     5        4  2+0.5  16Gi+4Gi   2+1    4+1

mnist/mnist: 1 pod waits: Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.
"""


def test_view_shows_requested_and_free_and_who_waits_for_what(
    server: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    top(server.api, None, RAILS, TABLE)

    assert capsys.readouterr().out == VIEW


UNKNOWN = """\
NODES              CPU  MEMORY  GPUS    RAILS
2 of 3 take pods    16   128Gi     8  unknown
requested          2.1  16.1Gi     2        4
free              13.9   112Gi     6  unknown
rails are unknown: nodes with pods that have rails, and without rails of their own: 1; VFs in ResourceSlices are not counted here
"""


@pytest.mark.parametrize("without", [{}, {"rdma/ib_vf": "0"}], ids=["no such resource", "none of it"])
def test_rails_are_unknown_where_a_node_says_none_and_its_pods_have_some(
    server: MemoryApiServer, capsys: pytest.CaptureFixture[str], without: dict[str, str]
) -> None:
    by_slices = node("a")
    others = {key: value for key, value in ALLOCATABLE.items() if key != "rdma/ib_vf"}
    by_slices["status"]["allocatable"] = {**others, **without}
    server.add("nodes", by_slices)

    top(server.api, None, RAILS, TABLE)
    assert capsys.readouterr().out.partition("\n\n")[0] + "\n" == UNKNOWN

    top(server.api, None, RAILS, JSON)
    cluster = json.loads(capsys.readouterr().out)["cluster"]
    assert (cluster["allocatable"]["rails"], cluster["free"]["rails"], cluster["requested"]["rails"]) == (None, None, 4)
    assert (cluster["free"]["gpus"], cluster["nodesOfUnknownRails"]) == (6, 1)


def test_view_as_json_has_exact_numbers(server: MemoryApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    top(server.api, None, RAILS, JSON)

    found = json.loads(capsys.readouterr().out)
    assert found["cluster"]["free"] == {"cpu": 13.9, "memory": (112 << 30) - (70 << 20), "gpus": 6, "rails": 12}
    assert found["jobs"][1] == {
        "namespace": "mnist",
        "job": "mnist",
        "operator": "TensorFlow on Kubernetes, plain templates",
        "running": 4,
        "waiting": 1,
        "requested": {"cpu": 2, "memory": 16 << 30, "gpus": 2, "rails": 4},
        "wanted": {"cpu": 0.5, "memory": 4 << 30, "gpus": 1, "rails": 1},
        "reasons": [{"why": "Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", "pods": 1}],
        "railsApart": None,
    }


def test_view_of_one_namespace_asks_only_for_it(server: MemoryApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.before = lambda request: status(403, "no") if "in namespace" not in str(request) else None
    top(server.api, "mnist", RAILS, TABLE)

    assert "NODES" not in (out := capsys.readouterr().out)
    assert "mnist" in out
    with pytest.raises(NotAllowed, match="the pods of one namespace are shown by -n NAMESPACE"):
        top(server.api, None, RAILS, TABLE)


def test_other_failures_are_not_taken_for_a_missing_right(server: MemoryApiServer) -> None:
    server.before = lambda request: status(400, "no")

    with pytest.raises(RequestFailed, match="HTTP 400"):
        top(server.api, None, RAILS, TABLE)


def on_rail(pod: dict[str, Any], rail: int) -> dict[str, Any]:
    networks = [{"name": "railnet/default", "interface": "net1", "ips": [f"10.56.{rail}.9"], "rail": rail}]
    annotations = {**(pod["metadata"].get("annotations") or {}), ANNOTATION: json.dumps(networks)}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


@pytest.fixture
def unlike(server: MemoryApiServer) -> MemoryApiServer:
    """A job whose first pod has rail 0, and the others rail 1."""
    for number, one in enumerate(pods(job(), RUNNING)[:4]):
        server.add("pods", on_rail(with_rail(one), min(number, 1)))
    return server


APART = config_map({frozenset({0, 1}): False}, datetime(2026, 11, 27, tzinfo=UTC))


def test_job_whose_pods_do_not_reach_each_other_is_named(
    unlike: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    unlike.add("configmaps", APART)
    top(unlike.api, "mnist", RAILS, TABLE)
    top(unlike.api, "mnist", RAILS, JSON)

    shown, _, told = capsys.readouterr().out.partition("{")
    assert shown.splitlines()[-1].startswith(
        "mnist/mnist: pods mnist-ps-0-x (rail 0) and mnist-ps-1-x (rail 1) do not reach each other over net1, as railnet validate found on 2026-11-27"
    )
    (found,) = json.loads("{" + told)["jobs"]
    assert found["railsApart"] == {
        "pods": [{"name": "mnist-ps-0-x", "rails": [0]}, {"name": "mnist-ps-1-x", "rails": [1]}],
        "found": "2026-11-27",
    }


@pytest.mark.parametrize(
    "published",
    [None, config_map({frozenset({0, 1}): True}, datetime(2026, 11, 27, tzinfo=UTC))],
    ids=["nothing published", "joined rails"],
)
def test_job_on_unlike_rails_is_not_named_unless_they_are_known_to_be_apart(
    unlike: MemoryApiServer, published: dict[str, Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if published is not None:
        unlike.add("configmaps", published)
    top(unlike.api, None, RAILS, TABLE)

    assert "reach" not in capsys.readouterr().out


def test_user_who_may_not_read_what_is_published_sees_the_view(
    unlike: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    unlike.before = lambda request: status(403, "no") if request.about.resource == "configmaps" else None
    top(unlike.api, None, RAILS, TABLE)

    assert "mnist" in (shown := capsys.readouterr().out)
    assert "reach" not in shown


def test_what_is_published_in_another_form_is_named(
    unlike: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    unlike.add("configmaps", {**APART, "data": {KEY: "[" * 10_000}})
    top(unlike.api, None, RAILS, TABLE)

    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"ConfigMap {NAMESPACE}/{NAME} is not as `railnet validate --publish` writes it (")


def test_nothing_is_asked_about_rails_where_no_pod_has_one(server: MemoryApiServer) -> None:
    top(server.api, None, RAILS, TABLE)

    assert not any("configmaps" in one for one in server.requests)


def watched(server: MemoryApiServer, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Watch in a thread; return what is printed, from the beginning: what `capsys` takes away while a thread prints may be lost."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    threading.Thread(target=lambda: watch(server.api, None, RAILS, JSON), daemon=True).start()
    until(lambda: "\n" in out.getvalue(), SECONDS, "the first view")
    return out


@pytest.mark.slow
def test_watch_shows_a_change_and_asks_nothing_at_rest(
    server: MemoryApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = watched(server, monkeypatch)
    server.add("pods", with_rail(pods(job(), RUNNING)[4]))
    until(lambda: '"running": 5' in out.getvalue(), SECONDS, "the change")
    until(lambda: sum("watch" in one for one in server.requests) == 4, SECONDS, "the watch of each collection")

    asked = len(server.requests)
    time.sleep(1.5)
    assert len(server.requests) == asked  # at rest nothing is asked
    assert [json.loads(line)["jobs"][1]["running"] for line in out.getvalue().splitlines()] == [4, 5]


def test_watch_prints_no_line_again_for_a_change_that_it_does_not_show(
    server: MemoryApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[list[GangWait]] = []

    def noted(
        nodes: Iterable[NodeRoom], found: Iterable[PodUse], waits: Iterable[GangWait], reach: PublishedReach
    ) -> Usage:
        looks.append([*waits])
        return usage(nodes, found, looks[-1], reach)

    monkeypatch.setattr(top_module, "usage", noted)
    monkeypatch.setattr(top_module, "_REDRAW_SECONDS", 0.0)
    out = watched(server, monkeypatch)
    server.add("events", an_event("ml", "no-gang"))
    until(lambda: looks[-1], SECONDS, "a look after the event")
    server.add("pods", with_rail(pods(job(), RUNNING)[4]))
    until(lambda: '"running": 5' in out.getvalue(), SECONDS, "the change")

    assert [json.loads(line)["jobs"][1]["running"] for line in out.getvalue().splitlines()] == [4, 5]


def test_watch_shows_a_change_while_the_api_server_does_not_say_which_rails_reach_each_other(
    server: MemoryApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_reach, "REACH_SECONDS", -1.0)
    monkeypatch.setattr(top_module, "_REDRAW_SECONDS", 0.0)
    ended, asked = threading.Event(), threading.Event()

    def wait(request: Request) -> None:
        if request.about.resource == "configmaps":
            asked.set()
            ended.wait(SECONDS)

    out = watched(server, monkeypatch)
    server.before = wait
    server.add("pods", with_rail(pods(job(), RUNNING)[4]))
    try:
        until(asked.is_set, SECONDS, "a request for what is published")
        until(lambda: '"running": 5' in out.getvalue(), SECONDS / 4, "the change")
    finally:
        ended.set()


def test_watch_shows_rails_that_are_said_to_be_apart_meanwhile(
    unlike: MemoryApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_reach, "REACH_SECONDS", -1.0)
    monkeypatch.setattr(top_module, "_REDRAW_SECONDS", 0.0)
    out = watched(unlike, monkeypatch)
    unlike.add("configmaps", APART)
    unlike.add("pods", with_rail(pods(job(), RUNNING)[4]))

    until(lambda: '"found": "2026-11-27"' in out.getvalue(), SECONDS, "the rails that are apart")


def test_what_was_known_of_rails_stays_while_the_api_server_refuses(
    server: MemoryApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_reach, "REACH_SECONDS", -1.0)
    server.add("configmaps", APART)
    reach = WatchedReach(server.api)
    server.before = lambda request: status(400, "no")
    asked = len(server.requests)
    # The second request begins after the first has failed.
    known = until(
        lambda: (latest := reach.latest()) and len(server.requests) > asked + 1 and latest, SECONDS, "requests"
    )

    assert (known.date, reach.has_changed) == ("2026-11-27", False)


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


def test_terminal_is_redrawn_and_lines_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "3")
    terminal = Terminal()
    screen = Screen(terminal)  # type: ignore[arg-type]

    screen.show(["a" * 20, "b", "c", "d"])
    screen.show(["e"])

    assert terminal.text == "\x1b[Jaaaaaaaaa\nb\n\x1b[2F\x1b[Je\n"


def test_file_gets_each_new_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(sys.stdout)

    for lines in (["a", "b"], ["a", "c"], ["a", "c"], ["b"]):
        screen.show(lines)

    assert capsys.readouterr().out == "a\nb\nc\nb\n"


@pytest.mark.slow
def test_ten_thousand_pods_are_listed_page_by_page_in_little_memory(measured: Any) -> None:
    import tracemalloc

    server = MemoryApiServer()
    one = with_rail(pods(job(), RUNNING)[3])
    for number in range(10_000):
        metadata = {**one["metadata"], "name": f"pod-{number}", "namespace": f"ns-{number % 100}", "uid": str(number)}
        server.objects["pods", metadata["namespace"], metadata["name"]] = {**one, "metadata": metadata}
    began = time.process_time()
    found = look(server.api, None, RAILS)
    seconds = time.process_time() - began
    tracemalloc.start()
    look(server.api, None, RAILS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    measured(f"10,000 pods: {seconds:.2f} s of a processor, {peak / (1 << 20):.1f} MiB")

    assert sum(job.running for job in found.jobs) == 10_000
    assert peak < 30 << 20


GATED = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
    ],
}
WAITS = "4/4 members seen, need 4x{nvidia.com/gpu: 1} in one railnet.io/leaf; 2 domains tried"


def an_event(namespace: str, gang: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{gang}.1", "namespace": namespace},
        "reason": "GangWaiting",
        "message": WAITS,
        "lastTimestamp": "2026-03-01T10:00:00Z",
        "involvedObject": {"kind": "ConfigMap", "namespace": namespace, "name": gang, "uid": "x"},
    }


def in_gang(pod: dict[str, Any], *, placed: str = "") -> dict[str, Any]:
    gates = {} if placed else {"schedulingGates": [{"name": "railnet.io/gang"}]}
    note = {"railnet.io/placement": json.dumps({"domain": {"railnet.io/leaf": placed}, "attempt": 1})} if placed else {}
    annotations = {**(pod["metadata"].get("annotations") or {}), **note}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}, "spec": {**pod["spec"], **gates}}


@pytest.fixture
def gangs(server: MemoryApiServer) -> MemoryApiServer:
    """Return the cluster of above with two gangs: one runs, the other waits."""
    for one in pods(job(name="near", ps=0, topology="railnet.io/leaf"), RUNNING):
        server.add("pods", in_gang(one, placed="0x1"))
    for one in pods(job(name="bert", ps=0, workers=4, topology="railnet.io/leaf"), GATED, ""):
        server.add("pods", in_gang(one))
    server.add("events", an_event("bert", "bert"))
    return server


def test_view_shows_gangs_their_places_and_what_one_waits_for(
    gangs: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    top(gangs.api, None, RAILS, TABLE)

    lines = capsys.readouterr().out.splitlines()
    at = lines.index("NAMESPACE  GANG    PODS  WAITING  RUNNING  PLACE")
    assert lines[at + 1 : at + 3] == [
        "bert       bert  4 of 4        4        0",
        "near       near  3 of 3        0        3  railnet.io/leaf=0x1",
    ]
    assert f"gang bert/bert waits for a place in one railnet.io/leaf: {WAITS}" in lines
    assert "bert/bert: 4 pods wait: behind a gate until its whole gang has a place" in lines


def test_view_says_why_a_gang_is_refused_since_when_it_waits_and_which_one_is_before_it(
    gangs: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for pod in pods(job(name="gpt", ps=0, workers=2, topology="railnet.io/leaf"), GATED, ""):
        gated = in_gang(pod)
        gangs.add("pods", {**gated, "metadata": {**gated["metadata"], "creationTimestamp": "2026-03-01T09:00:00Z"}})
    gangs.add("events", {**an_event("gpt", "gpt"), "reason": "GangRefused", "message": "no node has the label x"})
    top(gangs.api, None, RAILS, TABLE)

    expected = "gang gpt/gpt waits since 2026-03-01T09:00:00Z for a place in one railnet.io/leaf, behind gang bert/bert: no node has the label x"
    assert expected in capsys.readouterr().out.splitlines()


def test_json_has_the_gangs(gangs: MemoryApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    top(gangs.api, None, RAILS, JSON)

    bert, near = json.loads(capsys.readouterr().out)["gangs"]
    assert bert == {
        "namespace": "bert",
        "gang": "bert",
        "minAvailable": 4,
        "pods": 4,
        "gated": 4,
        "running": 0,
        "places": [],
        "why": WAITS,
        "since": None,
        "level": "in one railnet.io/leaf",
        "behind": None,
    }
    assert (near["places"], near["why"]) == ([{"railnet.io/leaf": "0x1"}], None)


def test_events_are_asked_for_only_where_a_gang_waits(
    server: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    top(server.api, None, RAILS, TABLE)

    assert "GANG" not in capsys.readouterr().out
    assert not any("events" in one for one in server.requests)


def test_without_the_right_to_list_events_gangs_are_shown_without_their_reasons(
    gangs: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    gangs.before = lambda request: status(403, "no") if "events" in str(request) else None
    top(gangs.api, None, RAILS, TABLE)

    out = capsys.readouterr().out
    assert "bert       bert  4 of 4" in out
    assert "gang bert/bert waits for a place in one railnet.io/leaf\n" in out


def test_other_failures_of_events_are_said(gangs: MemoryApiServer) -> None:
    gangs.before = lambda request: status(400, "no") if "events" in str(request) else None

    with pytest.raises(RequestFailed, match="HTTP 400"):
        top(gangs.api, None, RAILS, TABLE)


@pytest.mark.slow
def test_watch_shows_what_a_gang_waits_for_when_that_is_said(
    server: MemoryApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = pods(job(name="bert", ps=0, workers=1, gang="true"), GATED, "")
    server.add("pods", in_gang(one))
    out = watched(server, monkeypatch)
    server.add("events", an_event(one["metadata"]["namespace"], "bert"))
    until(lambda: WAITS in out.getvalue(), SECONDS, "what the gang waits for")

    assert [json.loads(line)["gangs"][0]["why"] for line in out.getvalue().splitlines()] == [None, WAITS]


def test_wide_view_names_the_operator_of_each_job(server: MemoryApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    top(server.api, None, RAILS, Output(Form.WIDE))

    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("NAMESPACE")).endswith("RAILS  OPERATOR")
    assert any(line.endswith("  TensorFlow on Kubernetes, plain templates") for line in lines)
