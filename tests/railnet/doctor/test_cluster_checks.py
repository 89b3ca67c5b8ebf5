"""Each finding of `railnet doctor --cluster`, from objects as the API server shows them, and none for a sound cluster."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.apiserver.client import RequestFailed
from railnet.doctor import cluster_checks
from railnet.doctor.cluster_gathering import gather
from railnet.doctor.cluster_parsing import pod_rails
from railnet.doctor.finding_kinds import OF_A_CLUSTER, Finding
from tests.railnet.doctor.test_pod_gathering import Answers, api, listed
from tests.railnet.gangs.slices_and_claims import slices_of

Json = dict[str, Any]
RAIL = "rdma/ib_vf"
IMAGE, WEBHOOK = "railnet.io/railnet:0.5.0", "railnet.io/railnet-admission:0.5.0"
NODES, PODS, PROGRAMS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/railnet/pods"
DAEMON_SET = "/apis/apps/v1/namespaces/railnet/daemonsets/railnet"
SERVICE_CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
KUBERNETES = "/api/v1/namespaces/default/services/kubernetes"
VERSION = "/version"
CARD = "feature.node.kubernetes.io/pci-0207_15b3.present"
TAINT = {"key": "railnet.io/rails-not-active", "effect": "NoSchedule"}
NO_NETWORK = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error"
TELLS = "by each pod's annotation network-status"


def a_node(name: str, subnet: int, **more: Any) -> Json:
    """Return a node; `vfs`, `labels`, `taints`, `rails` (the condition) and `ready` change it."""
    conditions = [{"type": "Ready", "status": more.get("ready", "True"), "message": more.get("why", "")}]
    if rails := more.get("rails", "True"):
        message = "rail 1 (mlx5_1) is DOWN" if rails == "False" else "all 2 rails are ACTIVE"
        conditions.append({"type": "RailnetRails", "status": rails, "reason": "x", "message": message})
    vfs = more.get("vfs", "8")
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/os": "linux", CARD: "true"} | dict(more.get("labels", {})),
        },
        "spec": {"podCIDRs": [f"10.244.{subnet}.0/24", f"fd00:{subnet}::/64"], "taints": more.get("taints", [])},
        "status": {"allocatable": {"cpu": "64"} | ({RAIL: vfs} if vfs else {}), "conditions": conditions},
    }


def guid(last: str) -> str:
    """Return an IPoIB hardware address whose GUID ends with these digits."""
    return "00:00:10:29:fe:80:00:00:00:00:00:00:ba:59:9f:03:01:f9:8f:" + last


def element(mac: object, ip: object, interface: object = "net1", network: object = "railnet/default") -> Json:
    return {"name": network, "interface": interface, "mac": mac, "ips": [ip], "rail": 0}


def a_pod(name: str, node: str, *rails: Json, **more: Any) -> Json:
    told = json.dumps([{"name": "cbr0", "interface": "eth0", "ips": ["10.244.1.9"], "mac": guid("00")}, *rails])
    annotations = {"k8s.v1.cni.cncf.io/network-status": more.get("told", told)}
    return {
        "metadata": {"namespace": "ml", "name": name, "annotations": annotations, **more.get("metadata", {})},
        "spec": {"nodeName": node},
        "status": {"phase": more.get("phase", "Running")},
    }


def ours(program: str, name: str, node: str, image: str, **more: Any) -> Json:
    container = program.removeprefix("railnet-")
    return {
        "metadata": {
            "namespace": "railnet",
            "name": name,
            "labels": {"app.kubernetes.io/name": program, **more.get("labels", {})},
            **more.get("metadata", {}),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "mesh", "image": name}, {"name": container, "image": image}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": more.get("ready", "True")}]},
    }


def daemon(node: str, **more: Any) -> Json:
    return ours("railnet", f"railnet-{node}", node, more.pop("image", IMAGE), **more)


def webhook(name: str = "admission-0", image: str = WEBHOOK) -> Json:
    return ours("railnet-admission", name, "head", image)


def daemon_set(**spec: Any) -> Json:
    template = {"nodeSelector": {"kubernetes.io/os": "linux"}, "tolerations": [{"operator": "Exists"}], **spec}
    return {"metadata": {"name": "railnet"}, "spec": {"template": {"spec": template}}}


SOUND: dict[str, object] = {
    NODES: [a_node("a", 1), a_node("b", 2)],
    PODS: [
        a_pod("train-0", "a", element(guid("11"), "10.56.1.1"), element(guid("12"), "10.56.129.1", "net2")),
        a_pod("train-1", "b", element(guid("13"), "10.56.2.1"), element(guid("14"), "10.56.130.1", "net2")),
        a_pod("plain", "b"),
    ],
    PROGRAMS: [daemon("a"), daemon("b"), webhook()],
    DAEMON_SET: daemon_set(),
    SERVICE_CIDRS: [{"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]}}],
    KUBERNETES: {"spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"]}},
    VERSION: {"major": "1", "minor": "37"},
}


def found(changes: Mapping[str, object]) -> tuple[Finding, ...]:
    """Return what is found in the sound cluster with these answers in place of its own; a number is a status of HTTP."""
    return cluster_checks.findings(gather(api(transport(changes)), frozenset({RAIL})))


def transport(changes: Mapping[str, object]) -> Answers:
    answers = SOUND | dict(changes)
    return Answers({path: listed(*one) if isinstance(one, list) else one for path, one in answers.items()})


def only(changes: Mapping[str, object]) -> Finding:
    (one,) = found(changes)
    return one


def pods(*made: Json) -> dict[str, object]:
    return {PODS: list(made)}


def test_sound_cluster_has_no_finding() -> None:
    assert found({}) == ()


CASES: dict[str, tuple[dict[str, object], Finding]] = {
    "a slice of the newest generation is missing": (
        {NODES: [a_node("a", 1), a_node("b", 2, vfs="", labels={CARD: "false"})], SLICES: slices_of("b", 100)[:1]},
        Finding("slices-incomplete", "b", "generation 1 has 1 of 2 slices"),
    ),
    "one resource in both ways": (
        {SLICES: slices_of("b", 4)},
        Finding("node-offers-both-ways", "b", "rdma/ib_vf: 8 allocatable, and 4 devices in ResourceSlices"),
    ),
    "two pods with one GUID": (
        pods(
            a_pod("x", "a", element(guid("11"), "10.56.1.1")),
            a_pod("y", "b", element(guid("12"), "10.56.2.1"), element(guid("11"), "10.56.130.1", "net2")),
        ),
        Finding(
            "guid-of-two-pods",
            "ml/x, ml/y",
            f"GUID ba59:9f03:01f9:8f11: net1 of ml/x on a, net2 of ml/y on b, {TELLS}",
        ),
    ),
    "two pods with one GUID below two queue pair numbers": (
        pods(
            a_pod("x", "a", element(guid("11"), "10.56.1.1")),
            a_pod("y", "b", element("00:00:20:30" + guid("11")[11:], "10.56.2.1")),
        ),
        Finding(
            "guid-of-two-pods",
            "ml/x, ml/y",
            f"GUID ba59:9f03:01f9:8f11: net1 of ml/x on a, net1 of ml/y on b, {TELLS}",
        ),
    ),
    "two pods with one MAC": (
        pods(
            a_pod("x", "a", element("02:00:00:00:00:01", "10.56.1.1")),
            a_pod("y", "b", element("02:00:00:00:00:01", "10.56.2.1")),
        ),
        Finding(
            "guid-of-two-pods", "ml/x, ml/y", f"MAC 02:00:00:00:00:01: net1 of ml/x on a, net1 of ml/y on b, {TELLS}"
        ),
    ),
    "two pods with one address": (
        pods(
            a_pod("x", "a", element(guid("11"), "10.56.1.1")),
            a_pod("y", "b", element(guid("12"), "10.56.1.1")),
            a_pod("z", "b", element(guid("13"), "10.56.1.1", network="railnet/other")),
        ),
        Finding(
            "address-of-two-pods",
            "ml/x, ml/y",
            f"10.56.1.1 of network default: net1 of ml/x on a, net1 of ml/y on b, {TELLS}",
        ),
    ),
    "an address of another node's pods": (
        pods(a_pod("x", "a", element(guid("11"), "10.244.2.7"))),
        Finding(
            "net1-in-cluster-range",
            "network default",
            "10.244.2.7 (net1 of ml/x) is in 10.244.2.0/24, the podCIDRs of node b",
        ),
    ),
    "an address of another node's pods, by IPv6": (
        pods(a_pod("x", "a", element(guid("11"), "fd00:2::7"))),
        Finding(
            "net1-in-cluster-range",
            "network default",
            "fd00:2::7 (net1 of ml/x) is in fd00:2::/64, the podCIDRs of node b",
        ),
    ),
    "an address of Services": (
        pods(a_pod("x", "a", element(guid("11"), "10.97.0.1"))),
        Finding(
            "net1-in-cluster-range",
            "network default",
            "10.97.0.1 (net1 of ml/x) is in 10.96.0.0/12, the range of ServiceCIDR kubernetes",
        ),
    ),
    "the address of the one known Service": (
        {
            **pods(a_pod("x", "a", element(guid("11"), "10.96.0.1"))),
            SERVICE_CIDRS: 404,
        },
        Finding(
            "net1-in-cluster-range",
            "network default",
            "10.96.0.1 (net1 of ml/x) is in 10.96.0.1/32, the address of Service default/kubernetes",
        ),
    ),
    "an old API server": (
        {VERSION: {"major": "1", "minor": "29"}},
        Finding(
            "kubernetes-too-old",
            "the API server",
            "Kubernetes 1.29 is older than 1.30, which Railnet needs; 0.5.x is the last version for it",
        ),
    ),
    "no DaemonSet": (
        {DAEMON_SET: 404, PROGRAMS: []},
        Finding(
            "no-daemonset", "daemonsets/railnet in namespace railnet", "the API server says that it does not exist"
        ),
    ),
    "a node without a daemon": (
        {PROGRAMS: [daemon("a"), webhook()]},
        Finding("node-pod-not-ready", "b", "no pod of the DaemonSet railnet is on this node, which it should be"),
    ),
    "a node with a daemon that is being deleted": (
        {PROGRAMS: [daemon("a"), daemon("b", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})]},
        Finding("node-pod-not-ready", "b", "no pod of the DaemonSet railnet is on this node, which it should be"),
    ),
    "a daemon that is not ready on a node that is away": (
        {NODES: [a_node("a", 1), a_node("b", 2, ready="Unknown")], PROGRAMS: [daemon("a"), daemon("b", ready="False")]},
        Finding("node-not-ready", "b", "Ready is Unknown: "),
    ),
    "a node whose network is not ready, with a daemon that is": (
        {NODES: [a_node("a", 1), a_node("b", 2, ready="False", why=NO_NETWORK)], PROGRAMS: [daemon("a"), daemon("b")]},
        Finding("node-not-ready", "b", f"Ready is False: {NO_NETWORK}"),
    ),
    "an update that stands still": (
        {PROGRAMS: [daemon("a"), daemon("b", image="railnet.io/railnet:0.6.0"), webhook()]},
        Finding(
            "update-unfinished",
            "railnet in namespace railnet",
            "railnet.io/railnet:0.5.0: 1 pod (a); railnet.io/railnet:0.6.0: 1 pod (b)",
        ),
    ),
    "a helper that was not updated": (
        {PROGRAMS: [daemon("a"), daemon("b"), webhook(image="mirror:5000/railnet-admission:v0.4.0@sha256:00")]},
        Finding("programs-differ", "namespace railnet", "railnet 0.5.0, railnet-admission 0.4.0"),
    ),
    "a label with another version": (
        {
            PROGRAMS: [
                *(daemon(node, labels={"app.kubernetes.io/version": "0.6.0"}) for node in "ab"),
                webhook(),
            ]
        },
        Finding("programs-differ", "namespace railnet", "railnet 0.6.0, railnet-admission 0.5.0"),
    ),
    "a card and no rails": (
        {NODES: [a_node("a", 1), a_node("b", 2, vfs="0")]},
        Finding(
            "node-without-rails",
            "b",
            f"label {CARD}; no resource of rails is allocatable, and no ResourceSlice has a healthy device",
        ),
    ),
    "a lost rail, with its taint": (
        {NODES: [a_node("a", 1), a_node("b", 2, rails="False", taints=[TAINT])]},
        Finding("rail-not-active", "b", "RailnetRails is False: rail 1 (mlx5_1) is DOWN"),
    ),
    "a taint that remains": (
        {NODES: [a_node("a", 1), a_node("b", 2, taints=[TAINT])]},
        Finding("taint-remains", "b", "taint railnet.io/rails-not-active; RailnetRails is True"),
    ),
    "a taint without a condition": (
        {NODES: [a_node("a", 1), a_node("b", 2, rails="", taints=[TAINT])]},
        Finding("taint-remains", "b", "taint railnet.io/rails-not-active; no condition RailnetRails"),
    ),
}


def test_node_whose_vfs_are_only_in_slices_has_rails() -> None:
    assert found({NODES: [a_node("a", 1), a_node("b", 2, vfs="")], SLICES: slices_of("b", 4)}) == ()


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES.keys())
def test_finding(changes: dict[str, object], expected: Finding) -> None:
    assert found(changes) == (expected,)


def test_every_kind_has_a_case() -> None:
    kinds = {expected.name for _, expected in CASES.values()}

    assert kinds - {"node-pod-not-ready", "rail-not-active"} == OF_A_CLUSTER.keys()


NONE: dict[str, dict[str, object]] = {
    "a pod that is being deleted": pods(
        a_pod("x", "a", element(guid("11"), "10.56.1.1")),
        a_pod("y", "a", element(guid("11"), "10.56.1.1"), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ),
    "a pod that has ended": pods(
        a_pod("x", "a", element(guid("11"), "10.56.1.1")),
        a_pod("y", "a", element(guid("11"), "10.56.1.1"), phase="Succeeded"),
    ),
    "addresses that are each interface's own": pods(
        *(a_pod(name, "a", element("00:00:00:00:00:00", "fe80::1")) for name in "xy")
    ),
    "zero GUIDs": pods(*(a_pod(name, "a", element(guid("11")[:35] + ":00" * 8, "x")) for name in "xy")),
    "a node that the DaemonSet's selector leaves out": {
        NODES: [a_node("a", 1), a_node("b", 2, labels={"kubernetes.io/os": "windows"})],
        PROGRAMS: [daemon("a")],
    },
    "a node with a taint that the DaemonSet does not tolerate": {
        NODES: [a_node("a", 1), a_node("b", 2, taints=[{"key": "mine", "effect": "NoSchedule"}])],
        PROGRAMS: [daemon("a")],
        DAEMON_SET: daemon_set(tolerations=[]),
    },
    "a node without a card": {
        NODES: [a_node("a", 1), a_node("b", 2, vfs="", labels={CARD: "false"})],
    },
    "a condition that is Unknown": {NODES: [a_node("a", 1), a_node("b", 2, rails="Unknown", taints=[TAINT])]},
    "images by digest": {PROGRAMS: [daemon(node, image="railnet.io/railnet@sha256:00") for node in "ab"] + [webhook()]},
    "an API server without ServiceCIDRs": {SERVICE_CIDRS: 404},
}


@pytest.mark.parametrize("changes", NONE.values(), ids=NONE.keys())
def test_no_finding(changes: dict[str, object]) -> None:
    assert found(changes) == ()


def test_cordoned_node_keeps_its_daemon_in_the_count() -> None:
    cordoned = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    changes = {
        NODES: [a_node("a", 1), a_node("b", 2, taints=cordoned)],
        PROGRAMS: [daemon("a")],
        DAEMON_SET: daemon_set(tolerations=[]),
    }

    assert only(changes).where == "b"


def test_pods_that_share_much_are_one_finding_and_many_pods_are_not_all_named() -> None:
    rails = [element(guid(f"{number:02x}"), f"10.56.1.{number}", f"net{number}") for number in range(1, 9)]
    made = [a_pod(f"p{number}", "a", *rails) for number in range(6)]

    by_guid, by_address = found(pods(*made))

    assert by_guid.where == "ml/p0, ml/p1, ml/p2, ml/p3, and 2 more"
    assert by_address.seen.startswith("10.56.1.1 of network default, 10.56.1.2 of network default,")


@pytest.mark.parametrize("path", [NODES, PODS, PROGRAMS, DAEMON_SET, VERSION, SERVICE_CIDRS, KUBERNETES])
def test_what_is_refused_is_a_finding_and_no_other_is_guessed(path: str) -> None:
    one = only({path: 403})

    assert one.name == "could-not-be-read"
    assert "403" in one.seen


MALFORMED: Sequence[Json] = ({}, {"metadata": {}, "spec": 5}, {"metadata": {"name": "a"}, "spec": {"podCIDRs": ["x"]}})


@pytest.mark.parametrize("path", [NODES, PROGRAMS, SERVICE_CIDRS])
@pytest.mark.parametrize("one", MALFORMED, ids=["empty", "another type", "another value"])
def test_object_in_another_form_is_a_finding(path: str, one: Json) -> None:
    sound = SOUND[path]
    assert isinstance(sound, list)

    assert only({path: [*sound, one]}).name == "could-not-be-read"


@pytest.mark.parametrize("path", [DAEMON_SET, KUBERNETES])
def test_single_object_in_another_form_is_a_finding(path: str) -> None:
    one = only({path: {"spec": 5}})

    assert (one.name, "unknown form" in one.seen) == ("could-not-be-read", True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["railnet/default", "net1", "10.0.0.1"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["name", "interface", "ips", "mac"]), inner)
        | st.fixed_dictionaries(
            {"name": st.just("railnet/ib"), "interface": st.just("net1") | inner, "ips": inner, "mac": inner}
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.text() | (st.lists(JSON) | JSON).map(json.dumps))
def test_any_annotation_gives_rails_or_none(told: str) -> None:
    one = pod_rails(a_pod("x", "a", told=told))

    assert one is None or all(rail.network.startswith("railnet/") for rail in one.rails)


@pytest.mark.parametrize(
    "told", ["[" * 100_000, "", "null", '[{"name": "railnet/x"}]', '[{"name": "railnet/\\u001b"}]']
)
def test_hostile_annotation_gives_no_rails(told: str) -> None:
    assert pod_rails(a_pod("x", "a", told=told)) is None


def test_pod_with_hundreds_of_rails_is_read_as_far_as_a_pod_can_have_them() -> None:
    one = pod_rails(a_pod("x", "a", *(element("", "10.0.0.1", "net1", f"railnet/n{n}") for n in range(300))))

    assert one is not None
    assert len(one.rails) == 64


def test_cluster_that_shows_nothing_is_an_error_and_so_is_a_user_that_is_refused() -> None:
    with pytest.raises(RequestFailed, match="list nodes"):
        found({NODES: 403, PODS: 403, PROGRAMS: 403})
    with pytest.raises(RequestFailed, match="401"):
        found({NODES: 401})


def test_requests_are_few_and_none_is_for_a_pod() -> None:
    sent = transport({PODS: [a_pod(f"p{number}", "a") for number in range(200)]})
    gather(api(sent), frozenset({RAIL}))

    assert [path.partition("?")[0] for path in sent.asked] == [
        NODES,
        PODS,
        PROGRAMS,
        DAEMON_SET,
        VERSION,
        SERVICE_CIDRS,
        KUBERNETES,
        SLICES,
    ]
