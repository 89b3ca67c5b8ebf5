"""What of a cluster is in a bundle: a node that does not answer costs its part alone, and a secret is in no part."""

import json
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from railnet import __main__ as command
from railnet.apiserver.client import RequestFailed
from railnet.apiserver.request import ApiObject, Request
from railnet.bundle import archive, cluster_part
from railnet.bundle.cluster_part import ClusterBundle, Wanted
from railnet.bundle.parts import BundleParts
from railnet.cli import connection
from railnet.cli.exit_status import ExitStatus
from railnet.errors import Misconfigured
from tests.railnet.bundle.planted_secret import PLANTED, planted

SAID = json.dumps(
    {"files": {"doctor.json": '{"findings": []}'}, "left_out": [["status.json", "the daemon does not answer"]]}
)


def pod(name: str, node: str, program: str = "railnet", restarts: int = 0) -> dict[str, Any]:
    return planted(
        {
            "metadata": {"name": name, "namespace": "railnet", "labels": {"app.kubernetes.io/name": program}},
            "spec": {"nodeName": node, "containers": [{"name": program, "image": "railnet.io/railnet:0.5.1"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": program, "restartCount": restarts}]},
        }
    )


def event(kind: str, name: str, **keys: object) -> dict[str, Any]:
    about = {"kind": kind, "name": name, "fieldPath": PLANTED}
    metadata = {"name": "e", "annotations": {"x": PLANTED}}
    return {"metadata": metadata, "involvedObject": about, "reason": "RailnetRailLost", "message": "rail 0", **keys}


class Cluster:
    """An API server of two nodes, and the commands in its pods; `before` may refuse a request, by its words."""

    def __init__(self) -> None:
        self.nodes = [{"metadata": {"name": name, "annotations": {"x": PLANTED}}} for name in ("a", "b")]
        self.pods = [
            pod("railnet-1", "a", restarts=1),
            pod("railnet-2", "b"),
            pod("controllers-1", "a", "railnet-controllers"),
        ]
        self.events = {
            "railnet": [event("Pod", "railnet-1"), event("Pod", "other")],
            "default": [event("Node", "a"), event("Node", "c")],
        }
        self.before: Callable[[str], None] = lambda _: None
        self.log = b"a line"
        self.lines_of_log = 1
        self.answer: Callable[[str], str] = lambda _: SAID
        self.asked: list[str] = []
        self.progress: list[str] = []
        self.now = 0.0

    def send(self, request: Request) -> dict[str, Any]:
        self.asked.append(request.path)
        self.before(request.path)
        path = request.path.partition("?")[0]
        if path == "/version":
            return {"gitVersion": "v1.37.0"}
        items: list[dict[str, Any]] = {"nodes": self.nodes, "pods": self.pods}.get(path.rpartition("/")[2], [])
        if path.endswith("/events"):
            items = self.events[path.split("/")[-2]]
        return {"metadata": {"resourceVersion": "1"}, "items": items}

    def lines(self, request: Request, accepted: Callable[[], object] = lambda: None) -> Generator[bytes]:
        self.asked.append(request.path)
        self.before(request.path)
        accepted()
        for _ in range(self.lines_of_log):
            yield self.log

    def run(self, about: ApiObject, container: str, command: Sequence[str], seconds: float) -> str:
        assert (container, list(command)) == ("railnet", ["railnet", "bundle", "--print"])
        self.before(f"exec {about.name}")
        return self.answer(about.name)

    def bundle(self, wanted: Wanted = Wanted(), doctor: Callable[[], Any] = lambda: {"findings": []}) -> BundleParts:  # noqa: B008 - a constant
        return ClusterBundle(self, self, wanted, self.progress.append, lambda: self.now).gather(doctor)  # type: ignore[arg-type]


def refusing(part: str) -> Callable[[str], None]:
    def refuse(path: str) -> None:
        if part in path:
            raise RequestFailed(f"cannot {path}: HTTP 403", 403)

    return refuse


def test_each_node_has_its_parts_and_the_secret_is_in_none() -> None:
    cluster = Cluster()

    parts = cluster.bundle()

    assert set(parts.texts) == {
        "cluster/version.json",
        "cluster/doctor.json",
        "cluster/events.json",
        "cluster/controllers-1.json",
        "cluster/controllers-1.railnet-controllers.log",
        *(f"nodes/{name}/{file}" for name in "ab" for file in ("node.json", "events.json", "doctor.json")),
        "nodes/a/railnet-1.json",
        "nodes/a/railnet-1.railnet.log",
        "nodes/a/railnet-1.railnet.previous.log",
        "nodes/b/railnet-2.json",
        "nodes/b/railnet-2.railnet.log",
    }
    assert PLANTED not in json.dumps(parts.as_json())
    assert PLANTED in json.dumps([cluster.nodes, cluster.pods, cluster.events])
    assert {entry.what for entry in parts.left_out} == {"nodes/a/status.json", "nodes/b/status.json"}
    assert [one["involvedObject"]["name"] for one in json.loads(parts.texts["nodes/a/events.json"])] == ["a"]
    assert [one["involvedObject"]["name"] for one in json.loads(parts.texts["cluster/events.json"])] == ["railnet-1"]
    assert not [path for path in cluster.asked if "secrets" in path or "configmaps" in path]
    assert cluster.progress[0] == "2 nodes"
    assert sorted(cluster.progress[1:]) == ["a: taken", "b: taken"]


def test_logs_are_asked_for_with_bounds_and_bounded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.log, cluster.lines_of_log = b"\xff" * 1000, 10_000

    parts = cluster.bundle()

    assert all("limitBytes=1048576" in path and "tailLines=5000" in path for path in cluster.asked if "/log" in path)
    text = parts.texts["nodes/a/railnet-1.railnet.log"]
    assert text.endswith("(the rest is left out)\n")
    assert len(text.encode()) <= 2 << 20


def test_node_is_chosen_by_name_and_an_unknown_name_is_said() -> None:
    parts = Cluster().bundle(Wanted(("b", "c")))

    assert {path.split("/")[1] for path in parts.texts if path.startswith("nodes/")} == {"b"}
    assert ("nodes/c", "the cluster has no such node") in parts.left_out


def test_nodes_are_chosen_by_labels() -> None:
    cluster = Cluster()

    cluster.bundle(Wanted(selector="gpu=old"))

    assert any(path.startswith("/api/v1/nodes?") and "labelSelector=gpu%3Dold" in path for path in cluster.asked)


def test_no_node_as_asked_is_an_error_with_the_nodes() -> None:
    with pytest.raises(Misconfigured, match="no node of the cluster is as asked; its nodes are: a, b"):
        Cluster().bundle(Wanted(("c",)))


def test_nodes_that_cannot_be_listed_are_an_error() -> None:
    cluster = Cluster()
    cluster.before = refusing("/nodes")

    with pytest.raises(RequestFailed, match="HTTP 403"):
        cluster.bundle()


@pytest.mark.parametrize(
    ("part", "missing"),
    [
        ("exec railnet-1", "nodes/a, what the node says of itself"),
        ("railnet-1/log", "nodes/a/railnet-1.railnet.log"),
        ("/version", "cluster/version.json"),
        ("/events", "events in namespace railnet"),
    ],
)
def test_refusal_costs_its_part_alone(part: str, missing: str) -> None:
    whole, cluster = Cluster().bundle(), Cluster()
    cluster.before = refusing(part)

    parts = cluster.bundle()

    assert missing in {entry.what for entry in parts.left_out}
    assert "nodes/b/doctor.json" in parts.texts
    assert len(parts.texts) >= len(whole.texts) - 2


def test_pods_that_cannot_be_listed_leave_the_nodes() -> None:
    cluster = Cluster()
    cluster.before = refusing("/pods")

    parts = cluster.bundle()

    assert "pods in namespace railnet" in {entry.what for entry in parts.left_out}
    assert {"nodes/a/node.json", "nodes/b/node.json"} <= parts.texts.keys()


@pytest.mark.parametrize(
    "answer", ["", "[]", "{}", '{"files": {"a": 1}, "left_out": []}', "[" * 100_000, '{"files": {}, "left_out": [1]}']
)
def test_node_that_says_something_else_costs_its_part_alone(answer: str) -> None:
    cluster = Cluster()
    cluster.answer = lambda name: answer if name == "railnet-1" else SAID

    parts = cluster.bundle()

    assert "nodes/a, what the node says of itself" in {entry.what for entry in parts.left_out}
    assert "nodes/b/doctor.json" in parts.texts
    assert any(line.startswith("a: the node's own part is left out") for line in cluster.progress)


def test_node_without_a_pod_of_railnet_is_said() -> None:
    cluster = Cluster()
    del cluster.pods[1]

    parts = cluster.bundle()

    assert "Railnet has no pod on this node" in dict(parts.left_out)["nodes/b"]
    assert "nodes/b/node.json" in parts.texts


def test_node_whose_turn_comes_too_late_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_part, "_AT_ONCE", 1)
    cluster = Cluster()

    def slow(_: str) -> str:
        cluster.now += 400.0
        return SAID

    cluster.answer = slow
    parts = cluster.bundle()

    assert "its turn came after 300 s" in dict(parts.left_out)["nodes/b"]
    assert "nodes/a/doctor.json" in parts.texts
    assert "nodes/b/doctor.json" not in parts.texts


def test_bundle_that_is_full_says_what_is_missing() -> None:
    parts = Cluster().bundle(Wanted(most_bytes=600))

    assert sum(map(len, parts.texts.values())) <= 600
    assert any("the bundle would have more than 600 bytes" in entry.why for entry in parts.left_out)


def test_cluster_that_doctor_cannot_look_at_costs_its_part_alone() -> None:
    def refuse() -> None:
        raise RequestFailed("cannot list nodes: HTTP 500", 500)

    parts = Cluster().bundle(doctor=refuse)

    assert "cluster/doctor.json" in {entry.what for entry in parts.left_out}


@pytest.mark.parametrize("odd", [{}, {"metadata": None}, {"metadata": {"name": 1}}, {"metadata": {"name": "../../x"}}])
def test_object_of_another_form_ends_nothing(odd: dict[str, Any]) -> None:
    cluster = Cluster()
    cluster.nodes.append(odd)
    cluster.pods.append(odd)
    cluster.events["railnet"].append(odd)

    assert "nodes/a/doctor.json" in cluster.bundle().texts


def ended(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *arguments: str) -> object:
    monkeypatch.setattr(connection, "connect_with_exec", lambda *_: (cluster, cluster))
    monkeypatch.setattr("sys.argv", ["railnet", "bundle", *arguments])
    with pytest.raises(SystemExit) as end:
        command.main()
    return end.value.code


@pytest.mark.parametrize("options", [["--all"], ["--node", "b"], ["-l", "gpu=old"]])
def test_command_writes_an_archive_and_says_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    file = tmp_path / "report.tar.gz"

    assert ended(monkeypatch, Cluster(), *options, str(file)) == ExitStatus.UNKNOWN
    said = capsys.readouterr()
    assert said.out.startswith(f"{file} has ")
    assert "railnet: b: taken\n" in said.err
    assert "railnet: left out: nodes/b/status.json: the daemon does not answer\n" in said.err
    assert "cluster/doctor.json" in archive.read(file).files


@pytest.mark.parametrize(
    ("options", "status"), [(["--node", "c"], ExitStatus.MISCONFIGURED), (["--all"], ExitStatus.FAILED)]
)
def test_cluster_that_gives_nothing_is_one_error_and_no_archive(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    options: list[str],
    status: ExitStatus,
) -> None:
    cluster = Cluster()
    if status == ExitStatus.FAILED:
        cluster.before = refusing("/nodes")

    assert ended(monkeypatch, cluster, *options, str(tmp_path / "report.tar.gz")) == status
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["missing/report.tar.gz", "."])
def test_archive_that_cannot_be_there_is_said_before_a_node_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, path: str
) -> None:
    cluster = Cluster()

    assert ended(monkeypatch, cluster, "--all", str(tmp_path / path)) == ExitStatus.MISCONFIGURED
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), str(tmp_path) in said.err) == ("", 1, True)
    assert (cluster.asked, list(tmp_path.iterdir())) == ([], [])


def test_print_with_a_file_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "report.tar.gz"

    assert ended(monkeypatch, Cluster(), "--print", str(file)) == ExitStatus.USAGE
    said = f"railnet: --print writes no archive, and {file} would be one; leave out one of the two\n"
    assert capsys.readouterr() == ("", said)
