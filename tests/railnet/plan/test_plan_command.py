"""`railnet plan`: what it asks of a cluster or a bundle, what it prints, and how it ends."""

import json
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet import __main__ as command
from railnet.apiserver.client import RequestFailed
from railnet.apiserver.request import ApiObject, Request
from railnet.bundle import archive
from railnet.bundle.archive import Bundle
from railnet.bundle.parts import BundleParts, LeftOut
from railnet.cli import connection
from railnet.cli.exit_status import ExitStatus
from railnet.plan import bundle_reading
from railnet.plan.cluster_reading import WantedNodes, read
from railnet.plan.planning import plan
from tests.railnet.plan.reports import eight, four, slices

GPUS = {"nvidia.com/gpu": "8", "cpu": "64"}


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": GPUS}}


def pod(name: str, on: str, group: str = "", **metadata: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "railnet"} | ({"railnet.io/node-group": group} if group else {})
    return {"metadata": {"name": name, "labels": labels, **metadata}, "spec": {"nodeName": on}}


def config_map(name: str, text: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"node.yaml": text}}


class Cluster:
    """An API server of three nodes, of which one has no pod, and the commands in the pods."""

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, Any]]] = {
            "nodes": [node("a"), node("b"), node("cpu")],
            "pods": [pod("railnet-1", "a"), pod("railnet-2", "b"), pod("railnet-0", "a", deletionTimestamp="x")],
            "configmaps": [config_map("railnet-node", "rails: auto"), config_map("railnet-controllers", "x: y")],
        }
        self.refused: set[str] = set()
        self.asked: set[str] | None = None  # the nodes that have the labels of a selector; None for all
        self.answers: dict[str, Callable[[], str]] = {}
        self.ran: list[tuple[str, tuple[str, ...]]] = []
        self.paths: list[str] = []
        self.said: list[str] = []
        self.now = 0.0

    def send(self, request: Request) -> dict[str, Any]:
        kind = request.path.partition("?")[0].rpartition("/")[2]
        self.paths.append(request.path)
        if kind in self.refused:
            raise RequestFailed(f"cannot list {kind}: forbidden", 403)
        items = self.objects[kind]
        if kind == "nodes" and "labelSelector" in request.path and self.asked is not None:
            items = [each for each in items if each["metadata"]["name"] in self.asked]
        return {"metadata": {"resourceVersion": "1"}, "items": items}

    def lines(self, request: Request, accepted: Callable[[], object] = lambda: None) -> Generator[bytes]:
        raise NotImplementedError

    def run(self, about: ApiObject, container: str, words: Sequence[str], seconds: float) -> str:
        self.ran.append((about.name, tuple(words)))
        assert (about.namespace, container) == ("railnet", "railnet")
        return self.answers.get(about.name, lambda: json.dumps(four()))()

    def reading(self, **wanted: Any) -> Any:
        return read(self, self, WantedNodes(**wanted), self.said.append, lambda: self.now)


def test_each_node_with_a_pod_is_asked_and_one_without_is_named() -> None:
    cluster = Cluster()
    reading = cluster.reading()

    assert [(each.name, each.gpus, len(each.cards)) for each in reading.nodes] == [("a", 8, 4), ("b", 8, 4)]
    assert [(each.name, each.why) for each in reading.unseen] == [("cpu", "Railnet has no pod on this node")]
    assert sorted(cluster.ran) == [(f"railnet-{n}", ("railnet", "status", "-o", "json")) for n in (1, 2)]
    assert (dict(reading.running.documents), reading.running.unread) == ({"": {"rails": "auto"}}, ())
    assert cluster.said == ["asking 3 nodes"]


def fails(error: Exception) -> Callable[[], str]:
    def answer() -> str:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (fails(RequestFailed("the container is not there")), "the container is not there"),
        (lambda: "", "did not answer as a node does"),
        (lambda: "not json", "did not answer as a node does"),
        (lambda: "[" * 100_000, "did not answer as a node does"),
        (lambda: "1" * 5000, "did not answer as a node does"),
        (lambda: '{"rails": 7}', "did not answer as a node does: rails is no list"),
    ],
    ids=["dies", "nothing", "no JSON", "nested", "long number", "no report"],
)
def test_node_that_does_not_answer_as_one_costs_itself_alone(answer: Callable[[], str], words: str) -> None:
    cluster = Cluster()
    cluster.answers["railnet-1"] = answer
    reading = cluster.reading()

    assert [each.name for each in reading.nodes] == ["b"]
    (why,) = (each.why for each in reading.unseen if each.name == "a")
    assert words in why
    assert len(why) < 400


def test_node_whose_turn_comes_too_late_is_named() -> None:
    cluster = Cluster()

    def slow() -> str:
        cluster.now += 100
        return json.dumps(four())

    cluster.objects["nodes"] = [node(f"n{number}") for number in range(40)]
    cluster.objects["pods"] = [pod(f"railnet-{number}", f"n{number}") for number in range(40)]
    cluster.answers = dict.fromkeys((f"railnet-{number}" for number in range(40)), slow)
    reading = cluster.reading(seconds=50)

    assert len(reading.nodes) + len(reading.unseen) == 40
    assert reading.unseen
    assert {each.why for each in reading.unseen} == {"its turn came after 50 s; allow more by --timeout"}


def test_configurations_that_may_not_be_read_are_said_and_the_proposal_is_made() -> None:
    cluster = Cluster()
    cluster.refused = {"configmaps"}

    (unread,) = cluster.reading().running.unread

    assert unread.startswith("the configurations that run could not be read: cannot list configmaps")


def test_nodes_of_a_selector_are_asked_alone() -> None:
    cluster = Cluster()
    reading = cluster.reading(selector="card=true")

    assert any("nodes?labelSelector=card" in path for path in cluster.paths)
    assert (reading.unasked, cluster.reading().unasked) == ({}, None)


def test_labels_of_the_nodes_that_were_not_asked_are_known() -> None:
    cluster = Cluster()
    cluster.objects["nodes"] = [node("a"), node("b", rack="2"), node("cpu")]
    cluster.asked = {"a"}

    assert cluster.reading(selector="card=true").unasked == {"b": {"rack": "2"}, "cpu": {}}


def test_selector_gives_groups_alone_and_keeps_those_that_run(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.objects["nodes"] = [node("a", card="true"), node("b", **{"railnet.io/node-group": "old"})]
    cluster.asked = {"a"}
    cluster.objects["pods"][1] = pod("railnet-2", "b", "old")
    cluster.objects["pods"][1]["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux", "railnet.io/node-group": "old"}
    cluster.objects["configmaps"].append(config_map("railnet-node-old", "memlock: unlimited"))

    assert ran(monkeypatch, "-l", "card=true") == ExitStatus.OK

    values = yaml.safe_load(capsys.readouterr().out)
    assert set(values["node"]) == {"groups"}
    assert values["node"]["groups"][1] == {
        "name": "old",
        "nodeSelector": {"railnet.io/node-group": "old"},
        "configuration": {"memlock": "unlimited"},
    }


def test_group_of_a_pod_says_which_configuration_runs() -> None:
    cluster = Cluster()
    cluster.objects["pods"][1] = pod("railnet-2", "b", "old")
    cluster.objects["configmaps"].append(config_map("railnet-node-old", "rails: ['0000:21:00.0']"))
    reading = cluster.reading()

    assert [each.group for each in reading.nodes] == ["", "old"]
    assert set(reading.running.documents) == {"", "old"}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    served = Cluster()
    served.objects["nodes"] = [node("a"), node("b")]
    monkeypatch.setattr(connection, "connect_with_exec", lambda *_: (served, served))
    return served


def ran(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["railnet", "plan", *words])
    with pytest.raises(SystemExit) as ended:
        command.main()
    return int(ended.value.code or 0)


def test_output_is_a_values_file(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(monkeypatch) == ExitStatus.OK

    printed = capsys.readouterr()
    assert yaml.safe_load(printed.out)["node"]["configuration"]["networks"] == slices(4)
    assert printed.err == "railnet: asking 2 nodes\n"


def test_node_that_was_not_seen_is_in_the_file_and_on_stderr_and_the_status_is_6(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.answers["railnet-2"] = lambda: "x"

    assert ran(monkeypatch) == ExitStatus.UNKNOWN

    printed = capsys.readouterr()
    assert "b: it did not answer" in printed.out
    assert "railnet: not seen: b: it did not answer" in printed.err


def test_json_has_the_values_and_the_differences(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.answers["railnet-2"] = lambda: json.dumps(eight())

    assert ran(monkeypatch, "-o", "json") == ExitStatus.OK

    told = json.loads(capsys.readouterr().out)
    assert [group["name"] for group in told["values"]["node"]["groups"]] == ["4x200g", "8x400g"]
    assert {each["key"] for each in told["differences"]} == {"rails", "provision", "networks.default.ipam.rails"}


def test_diff_ends_with_1_if_there_is_one_and_0_if_there_is_none(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(monkeypatch, "--diff") == ExitStatus.FAILED
    assert capsys.readouterr().out.startswith("a, b: provision\n- (absent)\n+ - select:\n")

    text = 'provision: [{select: {pfDevice: ["101b"]}, vfs: 8}]\nnetworks: {default: {ipam: {type: slice, rails: 4}}}'
    cluster.objects["configmaps"] = [config_map("railnet-node", text)]
    assert ran(monkeypatch, "--diff") == ExitStatus.OK
    assert capsys.readouterr().out == "The proposal is what runs.\n"


def test_diff_without_the_configurations_ends_with_6_and_does_not_say_that_all_is_well(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refused = {"configmaps"}

    assert ran(monkeypatch, "--diff") == ExitStatus.UNKNOWN
    printed = capsys.readouterr().out
    assert printed.startswith("not compared: the configurations that run could not be read")
    assert "is what runs" not in printed


def test_cluster_that_does_not_list_its_nodes_is_one_line_and_6(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refused = {"nodes"}

    assert ran(monkeypatch) == ExitStatus.UNKNOWN
    assert capsys.readouterr().err == "railnet: cannot list nodes: forbidden\n"


@pytest.mark.parametrize("words", [("--vfs", "0"), ("--vfs", "x"), ("--vfs", "70000"), ("--timeout", "0")])
def test_number_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    assert ran(monkeypatch, *words) == ExitStatus.USAGE


def a_bundle() -> Bundle:
    files = {
        "nodes/a/status.json": json.dumps(four()).encode(),
        "nodes/a/node.json": json.dumps(node("a")).encode(),
        "nodes/a/node.yaml.json": b'{"rails": "auto"}',
        "nodes/b/status.json": json.dumps(four()).encode(),
        "nodes/c/doctor.json": b"{}",
        "nodes/d/status.json": b"[" * 100_000,
        "cluster/doctor.json": b"{}",
    }
    return Bundle({}, files, (LeftOut("nodes/c/status.json", "the daemon does not answer"),))


def test_bundle_has_the_nodes_as_they_were() -> None:
    reading = bundle_reading.read(a_bundle())

    assert [(each.name, each.gpus, each.group) for each in reading.nodes] == [("a", 8, "a"), ("b", None, "b")]
    assert [(each.name, each.why) for each in reading.unseen] == [
        ("c", "the daemon does not answer"),
        ("d", "the bundle has no status of it"),
    ]
    assert any("a bundle does not say which groups of nodes there are" in text for text in plan(reading).wrong)
    assert (set(reading.running.documents), reading.running.unread) == (
        {"a"},
        ("the configuration of b is not in the bundle",),
    )


@pytest.mark.parametrize("depth", [90, 500, 5000, 90_000])
def test_bundle_with_a_configuration_that_is_nested_deeply_has_its_nodes(depth: int) -> None:
    nested = {"nodes/a/node.yaml.json": b'{"a":' * depth + b"1" + b"}" * depth}
    bundle = a_bundle()
    reading = bundle_reading.read(bundle._replace(files={**bundle.files, **nested}))

    assert [each.name for each in reading.nodes] == ["a", "b"]
    assert (dict(reading.running.documents), len(reading.running.unread)) == ({}, 2)


def test_plan_of_a_bundle_asks_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = BundleParts(1 << 20)
    parts.add_json("nodes/a/status.json", four())
    parts.add_json("nodes/a/node.json", node("a"))
    parts.add_json("nodes/a/node.yaml.json", {"rails": "auto"})
    with archive.new(tmp_path / "b.tar.gz") as file:
        archive.write(file, parts, {})
    monkeypatch.setattr(connection, "connect_with_exec", lambda *_: pytest.fail("it asked a cluster"))

    assert ran(monkeypatch, "--bundle", str(tmp_path / "b.tar.gz")) == ExitStatus.OK
    assert yaml.safe_load(capsys.readouterr().out)["node"]["configuration"]["provision"][0]["vfs"] == 8
    assert ran(monkeypatch, "--bundle", str(tmp_path / "none.tar.gz")) == ExitStatus.MISCONFIGURED


@pytest.mark.parametrize("words", [("-l", "a=b"), ("--kubeconfig", "k"), ("--context", "c")])
def test_option_of_a_cluster_beside_a_bundle_is_refused(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(monkeypatch, "--bundle", str(tmp_path / "b.tar.gz"), *words) == ExitStatus.USAGE
    assert "leave out --selector, --kubeconfig and --context" in capsys.readouterr().err


def test_labels_that_no_node_has_are_said_and_nothing_is_proposed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.asked = set()

    assert ran(monkeypatch, "-l", "rack=7") == ExitStatus.MISCONFIGURED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("railnet: the cluster has no node with the labels rack=7; ")
