"""The decision if several facts count: labels, the pod's own request, its role, its namespace, its GPUs."""

import copy
from ipaddress import ip_network
from typing import Any

import pytest

from railnet.admission.decision import Additions, Decision, Untouched, decide
from railnet.admission.environment import VARIABLES
from railnet.admission.review_configuration import Namespace, Policy
from railnet.errors import Misconfigured, NotPermitted, NotReady
from railnet.objects.pod import parse
from railnet.vf.permitted_networks import Limit, Network, Networks, NoIpam, StaticIpam, StickyIpam
from tests.railnet.admission.reviewing import ask, patch_of, reviewed

JOB = "training.kubeflow.org/"


def a_pod(role: str = "worker", gpus: int = 8, asks: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    limits = {**({"nvidia.com/gpu": str(gpus)} if gpus else {}), **(asks or {})}
    labels = {
        f"{JOB}operator-name": "tfjob-controller",
        f"{JOB}job-name": "mnist",
        f"{JOB}replica-type": role,
        f"{JOB}replica-index": "0",
        **changes.pop("labels", {}),
    }
    container = {"name": "tensorflow", "resources": {"limits": limits, "requests": dict(limits)}, "env": []}
    return {
        "metadata": {"name": "mnist-0", "labels": labels, "annotations": changes.pop("annotations", {})},
        "spec": {"containers": [container], **changes},
    }


def decided(pod: dict[str, Any], net1: bool | None = None, policy: Policy | None = None) -> Decision:
    return decide(parse(pod), Namespace("ml", net1), policy or Policy())


def gets(pod: dict[str, Any], net1: bool | None = None, policy: Policy | None = None) -> bool:
    return isinstance(decided(pod, net1, policy), Additions)


ON, OFF = {"railnet.io/net1": "true"}, {"railnet.io/net1": "false"}
PRECEDENCE = {
    "GPUs": (a_pod(), None, True),
    "no GPUs": (a_pod(gpus=0), None, False),
    "no GPUs, the namespace opted in": (a_pod(gpus=0), True, True),
    "GPUs, the namespace opted out": (a_pod(), False, False),
    "the pod's label against its namespace's": (a_pod(gpus=0, labels=ON), False, True),
    "the pod's label against its GPUs and namespace": (a_pod(labels=OFF), True, False),
    "a role that takes no part": (a_pod("evaluator"), True, False),
    "the pod's label against its role": (a_pod("evaluator", labels=ON), None, True),
    "a launcher": (a_pod("launcher", gpus=0), None, False),
    "a launcher, the namespace opted in": (a_pod("launcher", gpus=0), True, True),
    "its own request without GPUs": (a_pod(gpus=0, asks={"rdma/ib_vf": "1"}), None, True),
    "its own request against its role": (a_pod("evaluator", asks={"rdma/ib_vf": "1"}), None, True),
    "its own request for none against all": (a_pod(labels=ON, asks={"rdma/ib_vf": "0"}), True, False),
    "its own request, the namespace opted out": (a_pod(asks={"rdma/ib_vf": "1"}), False, False),
    "GPUs, on the host's network by its author": (a_pod(hostNetwork=True), None, False),
    "on the host's network, the namespace opted in": (a_pod(hostNetwork=True), True, False),
    "on the host's network with the pod's label": (a_pod(hostNetwork=True, labels=ON), None, True),
    "on the host's network with its own request": (a_pod(hostNetwork=True, asks={"rdma/ib_vf": "1"}), None, True),
    "in KubeDL's host-network mode": (
        a_pod(hostNetwork=True, annotations={"kubedl.io/network-mode": "host"}),
        None,
        True,
    ),
    "in Railnet's host-network mode, at the second review": (
        a_pod(hostNetwork=True, annotations={"railnet.io/network-mode": "host", "railnet.io/host-port": "20000"}),
        None,
        True,
    ),
}


@pytest.mark.parametrize(("pod", "net1", "expected"), PRECEDENCE.values(), ids=PRECEDENCE.keys())
def test_pod_gets_a_rail_by_the_fact_that_takes_precedence(pod: dict[str, Any], net1: bool | None, expected: bool):
    assert gets(pod, net1) is expected


def test_request_for_a_resource_of_any_pool_is_a_request_for_a_rail():
    policy = Policy(resources=("rdma/ib_vf", "rdma/ib_vf_b"))

    decision = decided(a_pod(asks={"rdma/ib_vf_b": "2"}), policy=policy)

    assert isinstance(decision, Additions)
    assert decision.vfs == 0
    assert decision.kept[-1] == "kept its request for 2 rdma/ib_vf_b"


def a_sidecar(**asks: str) -> dict[str, Any]:
    return {"name": "s", "restartPolicy": "Always", "resources": {"limits": asks, "requests": dict(asks)}}


OF_TEMPLATE = [{"name": "vf", "resourceClaimTemplateName": "vfs"}]


@pytest.mark.parametrize("net1", [None, True])
@pytest.mark.parametrize("gpus", [0, 8])
def test_pod_that_asks_by_claims_gets_no_second_request_and_everything_else(gpus: int, *, net1: bool | None):
    pod = parse(a_pod(gpus=gpus, resourceClaims=OF_TEMPLATE))
    decision = decide(pod, Namespace("ml", net1), Policy(), claimed=lambda _: 2)

    assert isinstance(decision, Additions)
    assert decision.vfs == 0
    assert decision.kept == ("kept its request for 2 by ResourceClaims",)
    assert [variable.name for variable in decision.variables] == [variable.name for variable in VARIABLES]
    assert decision.labels["railnet.io/rank"] == "0"


def test_pod_whose_claims_ask_for_no_vf_is_decided_as_without_claims():
    with_claims, without = a_pod(resourceClaims=OF_TEMPLATE), a_pod()

    assert decide(parse(with_claims), Namespace("ml"), Policy(), claimed=lambda _: 0) == decided(without)
    assert decided(with_claims) == decided(without)  # where claims are not watched


def test_request_beside_claims_is_added_to_them():
    pod = parse(a_pod(asks={"rdma/ib_vf": "1"}, resourceClaims=OF_TEMPLATE, annotations={"railnet.io/vf": "2"}))

    with pytest.raises(Misconfigured, match="ask for 1 rdma/ib_vf and 2 by ResourceClaims"):
        decide(pod, Namespace("ml"), Policy(), claimed=lambda _: 2)


def test_claims_of_a_pod_that_is_of_no_job_are_not_looked_for():
    def claimed(_: Any) -> int:
        raise AssertionError("a plain pod must not depend on what is known of claims")

    pod = parse({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "x"}], "resourceClaims": OF_TEMPLATE}})
    assert isinstance(decide(pod, Namespace("ml"), Policy(), claimed=claimed), Untouched)


def not_known(_: Any) -> int:
    raise NotReady("the template is not known")


NO_LIMITS = Policy(networks=Networks({"default": Network()}, {"*": Limit(("default",), pools=("rdma/other",))}))
CLAIMS_NOT_KNOWN = {
    "a role that takes no part": (a_pod("evaluator"), None, Policy(), True),
    "a launcher": (a_pod("launcher", gpus=0), None, Policy(), True),
    "on the host's network by its author": (a_pod(hostNetwork=True), None, Policy(), True),
    "its namespace may have no VFs": (a_pod(), None, NO_LIMITS, True),
    "GPUs": (a_pod(), None, Policy(), False),
    "perhaps GPUs by claims": (a_pod(gpus=0), None, Policy(), False),
    "its own label": (a_pod("evaluator", labels=ON), None, Policy(), False),
    "a launcher whose namespace opted in": (a_pod("launcher", gpus=0), True, Policy(), False),
}


@pytest.mark.parametrize(
    ("pod", "net1", "policy", "left_alone"), CLAIMS_NOT_KNOWN.values(), ids=CLAIMS_NOT_KNOWN.keys()
)
def test_only_a_pod_that_could_get_vfs_is_refused_while_its_claims_are_not_known(
    pod: dict[str, Any], net1: bool | None, policy: Policy, left_alone: bool
):
    with_claims = copy.deepcopy(pod)
    with_claims["spec"]["resourceClaims"] = OF_TEMPLATE

    if left_alone:
        decision = decide(parse(with_claims), Namespace("ml", net1), policy, claimed=not_known)
        assert isinstance(decision, Untouched)
        assert decision == decided(pod, net1, policy)
    else:
        with pytest.raises(NotReady, match="the template is not known"):
            decide(parse(with_claims), Namespace("ml", net1), policy, claimed=not_known)


def test_vf_of_a_sidecar_counts_as_the_pods_request():
    decision = decided(a_pod(initContainers=[a_sidecar(**{"rdma/ib_vf": "1"})]))

    assert isinstance(decision, Additions)
    assert (decision.vfs, decision.kept[-1]) == (0, "kept its request for 1 rdma/ib_vf")


def test_vf_of_an_init_container_that_ends_is_not_counted():
    init = {**a_sidecar(**{"rdma/ib_vf": "1"}), "restartPolicy": None}
    decision = decided(a_pod(initContainers=[init]))

    assert isinstance(decision, Additions)
    assert decision.vfs == 1


def test_static_addresses_must_cover_the_vfs_of_sidecars():
    limits = {"ml": Limit(("storage",), static=True)}
    networks = Networks({"storage": Network("storage", ipam=StaticIpam())}, limits)
    pod = a_pod(
        asks={"rdma/ib_vf": "1"},
        initContainers=[a_sidecar(**{"rdma/ib_vf": "1"})],
        annotations={"railnet.io/network": "storage", "railnet.io/net1-ip": "10.0.0.1/24"},
    )

    with pytest.raises(Misconfigured, match=r"names 1 addresses, but the pod has 2 VFs"):
        decided(pod, policy=Policy(networks=networks))


def test_sidecar_with_a_resource_that_its_namespace_may_not_have_is_denied():
    with pytest.raises(NotPermitted, match=r"pods of namespace 'ml' may not have rdma/ib_vf"):
        decided(a_pod(initContainers=[a_sidecar(**{"rdma/ib_vf": "1"})]), policy=limited_to())


def test_contradiction_names_the_requested_resources():
    policy = Policy(resources=("rdma/ib_vf", "rdma/ib_vf_b"))
    asks = {"rdma/ib_vf_b": "2", "rdma/ib_vf": "1"}

    with pytest.raises(Misconfigured, match=r"is 4, but .* ask for 2 rdma/ib_vf_b and 1 rdma/ib_vf; remove one"):
        decided(a_pod(asks=asks, annotations={"railnet.io/vf": "4"}), policy=policy)


@pytest.mark.parametrize("later", [Policy(rails=8), Policy(rails=2), Policy()], ids=["as before", "fewer", "unknown"])
def test_auto_keeps_the_request_of_an_earlier_review(later: Policy):
    pod = reviewed(a_pod(gpus=1, annotations={"railnet.io/vf": "auto"}), Policy(rails=8))
    for asked in pod["spec"]["containers"][0]["resources"].values():
        asked["nvidia.com/gpu"] = "8"

    assert reviewed(pod, later) == pod


def test_added_resource_is_that_of_the_first_pool():
    [limit, *_] = patch_of(ask(a_pod(), Policy(resources=("example.com/hca", "rdma/ib_vf"))))

    assert limit["path"] == "/spec/containers/0/resources/limits/example.com~1hca"


def test_labels_that_the_pod_has_stay():
    pod = a_pod(labels={"railnet.io/job": "mine"})

    assert reviewed(pod)["metadata"]["labels"]["railnet.io/job"] == "mine"


def a_launcher(*command: str, **changes: Any) -> dict[str, Any]:
    launcher = a_pod("launcher", gpus=0, **changes)
    launcher["metadata"]["labels"][f"{JOB}operator-name"] = "mpijob-controller"
    launcher["spec"]["containers"][0]["command"] = list(command)
    return launcher


def test_launcher_without_a_vf_is_told_what_hides_the_vfs_of_its_ranks():
    launcher = a_launcher(
        "sh", "-c", "exec mpirun -mca btl_tcp_if_exclude lo,docker0 -x NCCL_IB_DISABLE=1 python train.py"
    )

    assert not gets(launcher)
    assert ask(launcher)["warnings"] == ["for ranks that have a VF: NCCL_IB_DISABLE is 1: NCCL uses no VF"]


@pytest.mark.parametrize("changes", [{}, {"labels": OFF}])
def test_launcher_whose_settings_hide_nothing_causes_no_warning(changes: dict[str, Any]):
    hides = ["-x", "NCCL_IB_DISABLE=1"] if changes else []

    assert "warnings" not in ask(a_launcher("mpirun", *hides, "python", "train.py", **changes))


def test_pod_that_takes_no_part_is_told_nothing_of_vfs():
    evaluator = a_pod("evaluator")
    evaluator["spec"]["containers"][0]["env"] = [{"name": "NCCL_IB_DISABLE", "value": "1"}]

    assert "warnings" not in ask(evaluator)


def test_label_written_as_an_annotation_has_no_effect_and_causes_a_warning():
    pod = {
        "metadata": {"name": "p", "labels": dict(ON), "annotations": {"railnet.io/role": "ps"}},
        "spec": {"containers": [{"name": "main"}]},
    }

    assert reviewed(pod)["metadata"]["labels"]["railnet.io/role"] == "worker"
    assert ask(pod)["warnings"][0].startswith("railnet.io/role has no effect: this version reads only")


def test_long_name_of_an_owner_becomes_a_label_that_is_unique():
    def label(name: str) -> str:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u", "controller": True}
        pod = {
            "metadata": {"name": "p", "labels": dict(ON), "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "main"}]},
        }
        value: str = reviewed(pod)["metadata"]["labels"]["railnet.io/job"]
        return value

    long = "a" * 53 + "." + "b" * 100

    assert label("a" * 63) == "a" * 63
    assert len(label(long)) <= 63
    assert label(long) != label(long + "c")
    assert label(long).startswith("a" * 53 + "-")


def test_rank_that_is_known_at_the_second_review_is_added_and_explained():
    pod = a_pod()
    del pod["metadata"]["labels"][f"{JOB}replica-index"]
    pod = reviewed(pod)
    before = pod["metadata"]["annotations"]["railnet.io/explain"]
    pod["metadata"]["labels"][f"{JOB}replica-index"] = "3"

    pod = reviewed(pod)

    assert pod["metadata"]["labels"]["railnet.io/rank"] == "3"
    assert pod["metadata"]["annotations"]["railnet.io/explain"] == f"{before}; then labelled railnet.io/rank"


def test_explanation_has_a_limited_length():
    pod = a_pod(annotations={"railnet.io/explain": "x" * 10_000})

    assert len(reviewed(pod)["metadata"]["annotations"]["railnet.io/explain"]) == 1024


def test_variable_with_value_from_a_config_map_stays():
    pod = a_pod()
    own = {"name": "NCCL_SOCKET_IFNAME", "valueFrom": {"configMapKeyRef": {"name": "nccl", "key": "ifname"}}}
    pod["spec"]["containers"][0]["env"] = [own]

    env = reviewed(pod)["spec"]["containers"][0]["env"]

    assert [variable["name"] for variable in env] == [variable.name for variable in VARIABLES]
    assert env[0] == own


def test_launcher_gets_the_variables_that_mpirun_forwards_and_no_vf():
    container = reviewed(a_pod("launcher", gpus=0), net1=True)["spec"]["containers"][0]

    assert container["env"] == [
        {"name": "OMPI_MCA_btl_tcp_latency_net1", "value": "1"},
        {"name": "OMPI_MCA_btl_tcp_bandwidth_net1", "value": "1000000000"},
    ]
    assert container["resources"]["limits"] == {}


def test_gpu_of_another_container_gives_no_rail():
    pod = a_pod(gpus=0)
    pod["spec"]["containers"].append({"name": "other", "resources": {"limits": {"nvidia.com/gpu": "1"}}})

    assert not gets(pod)


def test_gpu_of_an_init_container_gives_no_rail():
    assert not gets(a_pod(gpus=0, initContainers=[{"name": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]))


def test_init_containers_stay_unchanged():
    init = [{"name": "wait", "image": "alpine"}]

    assert reviewed(a_pod(initContainers=copy.deepcopy(init)))["spec"]["initContainers"] == init


def test_auto_counts_the_gpus_of_all_containers_and_is_at_least_one():
    policy = Policy(rails=8)
    pod = a_pod(gpus=2, annotations={"railnet.io/vf": "auto"})
    pod["spec"]["containers"].append({"name": "more", "resources": {"limits": {"nvidia.com/gpu": "1"}}})
    cpu = a_pod(gpus=0, annotations={"railnet.io/vf": "auto"}, labels=ON)

    assert reviewed(pod, policy)["spec"]["containers"][0]["resources"]["limits"]["rdma/ib_vf"] == "3"
    assert reviewed(cpu, policy)["spec"]["containers"][0]["resources"]["limits"]["rdma/ib_vf"] == "1"
    assert patch_of(ask(reviewed(cpu, policy), policy)) == []


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "257", "9" * 5000, "Auto", " 1", "\u0663"])
def test_malformed_number_of_vfs_is_denied(text: str):
    with pytest.raises(Misconfigured, match=r"railnet\.io/vf is '.*it should be a number of VFs from 1 to 256"):
        decided(a_pod(annotations={"railnet.io/vf": text}))


def test_annotation_of_an_untouched_pod_is_not_parsed():
    assert isinstance(decided(a_pod(gpus=0, annotations={"railnet.io/vf": "two"})), Untouched)


def test_number_of_vfs_that_equals_the_request_is_accepted():
    assert gets(a_pod(asks={"rdma/ib_vf": "2"}, annotations={"railnet.io/vf": "2"}))


def test_network_annotation_is_ignored_on_the_hosts_network():
    assert gets(a_pod(hostNetwork=True, labels=ON, annotations={"railnet.io/network": "nowhere"}))


WINDOWS: dict[str, dict[str, Any]] = {
    "os": {"os": {"name": "windows"}},
    "nodeSelector": {"nodeSelector": {"kubernetes.io/os": "windows"}},
}


@pytest.mark.parametrize("spec", WINDOWS.values(), ids=WINDOWS.keys())
def test_pod_for_windows_stays_untouched(spec: dict[str, Any]):
    assert decided(a_pod(**spec), net1=True) == Untouched("it is for Windows, where no node has a rail")


@pytest.mark.parametrize("spec", WINDOWS.values(), ids=WINDOWS.keys())
def test_pod_for_windows_with_the_label_is_denied(spec: dict[str, Any]):
    with pytest.raises(
        Misconfigured, match=r'for Windows, .* its label railnet\.io/net1 is "true"; remove one of them'
    ):
        decided(a_pod(labels=ON, **spec))


def test_pod_for_linux_gets_a_rail():
    assert gets(a_pod(os={"name": "linux"}, nodeSelector={"kubernetes.io/os": "linux"}))


CLASS = Policy(priority_class="iteration")
COMPUTED = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}  # by the API server, for a pod without a class


@pytest.mark.parametrize("spec", [{}, COMPUTED, {"priorityClassName": ""}], ids=["no field", "computed", "empty"])
def test_training_pod_without_a_priority_class_gets_the_configured_one_and_no_priority(spec: dict[str, Any]):
    pod = reviewed(a_pod(**spec), CLASS)

    assert pod["spec"]["priorityClassName"] == "iteration"
    assert pod["spec"].keys().isdisjoint(COMPUTED)
    assert "; set the PriorityClass iteration;" in pod["metadata"]["annotations"]["railnet.io/explain"]


def test_training_pod_with_a_priority_class_keeps_class_and_priority():
    own = {"priorityClassName": "production", "priority": 10000, "preemptionPolicy": "Never"}
    pod = reviewed(a_pod(**own), CLASS)

    assert {key: pod["spec"][key] for key in own} == own
    assert pod["metadata"]["annotations"]["railnet.io/explain"].endswith("; kept its PriorityClass production")


def test_priority_stays_without_a_configured_class():
    pod = reviewed(a_pod(**COMPUTED))

    assert {key: pod["spec"][key] for key in COMPUTED} == COMPUTED
    assert "priorityClassName" not in pod["spec"]


def test_launcher_that_gets_variables_only_gets_the_priority_class():
    assert reviewed(a_pod("launcher", gpus=0), CLASS, net1=True)["spec"]["priorityClassName"] == "iteration"


@pytest.mark.parametrize(
    ("pod", "net1"),
    [(a_pod(gpus=0), None), (a_pod("evaluator"), True), (a_pod(labels=OFF), None), (a_pod(), False)],
    ids=["no rail by default", "a role that takes no part", "switched off", "its namespace switched off"],
)
def test_pod_without_a_rail_gets_no_priority_class(pod: dict[str, Any], net1: bool | None):
    assert patch_of(ask(pod, CLASS, net1)) == []


def limited_to(*pools: str) -> Policy:
    networks = Networks(limits={"ml": Limit(pools=pools), "*": Limit()})
    return Policy(resources=("rdma/ib_vf", "rdma/ib_vf_b"), networks=networks)


def test_added_resource_is_the_first_that_the_namespace_may_have():
    decision = decided(a_pod(), policy=limited_to("rdma/ib_vf_b"))

    assert isinstance(decision, Additions)
    assert decision.resource == "rdma/ib_vf_b"


def test_pod_of_a_namespace_that_may_have_no_pool_stays_untouched():
    assert decided(a_pod(), policy=limited_to()) == Untouched(
        "worker 0 of mnist (Kubeflow training-operator): 'limits' lets pods of its namespace have no VFs"
    )


@pytest.mark.parametrize("pod", [a_pod(labels=ON), a_pod(asks={"rdma/ib_vf": "1"})], ids=["labelled", "by hand"])
def test_pod_that_asks_for_a_resource_its_namespace_may_not_have_is_denied(pod: dict[str, Any]):
    with pytest.raises(NotPermitted, match=r"pods of namespace 'ml' may not have rdma/ib_vf"):
        decided(pod, policy=limited_to())


STAYING = Policy(
    networks=Networks(
        {"default": Network(ipam=NoIpam()), "staying": Network("staying", ipam=StickyIpam(ip_network("10.58.0.0/16")))},
        {"*": Limit(("default", "staying"))},
    )
)
STICKY = {"railnet.io/sticky": "true"}


def of_ray(**changes: Any) -> dict[str, Any]:
    """Return a pod of an operator that gives its pods no rank."""
    labels = {"ray.io/is-ray-node": "yes", "ray.io/cluster": "c", "ray.io/node-type": "worker", "ray.io/group": "g"}
    container = {"name": "ray", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": {"name": "r", "labels": labels, **changes}, "spec": {"containers": [container]}}


def test_pod_with_a_sticky_address_gets_a_vf_and_the_environment_of_net1():
    """The network of pods that do not ask for such an address has no addresses at all here."""
    decision = decided(a_pod(annotations=STICKY), policy=STAYING)

    assert isinstance(decision, Additions)
    assert (decision.vfs, decision.variables[0].name, decision.annotations) == (1, "NCCL_SOCKET_IFNAME", {})


@pytest.mark.parametrize(
    ("pod", "kind", "words"),
    [
        (a_pod(annotations=STICKY | {"railnet.io/net1-ip": "10.58.0.7/16"}), NotPermitted, "remove one of the two"),
        (a_pod(annotations=STICKY | {"railnet.io/net1-ip": "x"}), NotPermitted, "railnet-controllers writes"),
        (a_pod(annotations={"railnet.io/sticky": "1"}), Misconfigured, 'should be "true" or "false"'),
        (a_pod(annotations=STICKY | {"railnet.io/vf": "2"}), Misconfigured, "has addresses for 1 of each pod"),
        (of_ray(annotations=STICKY), Misconfigured, "has no rank that an address could stay with"),
    ],
)
def test_sticky_pod_that_cannot_have_such_an_address_is_refused(pod: dict[str, Any], kind: type[Exception], words: str):
    with pytest.raises(kind, match=words):
        decided(pod, policy=STAYING)


def in_sticky_namespace(pod: dict[str, Any]) -> dict[str, str] | None:
    decision = decide(parse(pod), Namespace("ml", None, sticky=True), STAYING)
    return dict(decision.annotations) if isinstance(decision, Additions) else None


def test_namespaces_label_annotates_the_pods_that_have_a_rank_and_do_not_say_otherwise():
    assert in_sticky_namespace(a_pod()) == STICKY
    assert in_sticky_namespace(a_pod(annotations={"railnet.io/sticky": "false"})) == {}
    assert in_sticky_namespace(a_pod(annotations={"railnet.io/network": "default"})) == {}
    assert in_sticky_namespace(of_ray()) == {}
    assert in_sticky_namespace(a_pod(gpus=0)) is None


def test_annotation_of_the_namespace_is_added_once_and_explained():
    first = reviewed(a_pod(), STAYING, sticky=True)
    annotations = first["metadata"]["annotations"]

    assert annotations["railnet.io/sticky"] == "true"
    assert "annotated railnet.io/sticky, as the label of its namespace says" in annotations["railnet.io/explain"]
    assert reviewed(first, STAYING, sticky=True) == first


ENVIRONMENT = "railnet.io/environment"


@pytest.mark.parametrize(
    ("annotation", "configured", "named"),
    [(None, True, True), (None, False, False), ("false", True, False), ("true", False, True)],
)
def test_variables_that_name_net1_are_switched_by_the_pod_before_the_configuration(
    annotation: str | None, configured: bool, named: bool
):
    pod = a_pod(annotations={} if annotation is None else {ENVIRONMENT: annotation})

    decision = decided(pod, policy=Policy(environment=configured))

    assert isinstance(decision, Additions)
    assert decision.vfs == 1
    assert bool(decision.variables) is named


def test_switch_of_the_variables_that_is_no_switch_is_refused():
    with pytest.raises(Misconfigured, match=f'{ENVIRONMENT} is .no.; it should be "true" or "false"'):
        decided(a_pod(annotations={ENVIRONMENT: "no"}))


ALL_HCAS = [("NCCL_IB_HCA", ""), ("UCX_NET_DEVICES", "all")]
SEES = {
    "privileged": ({"securityContext": {"privileged": True}}, {}, ALL_HCAS),
    "devices of another RDMA plugin": ({}, {"rdma/hca_shared_devices_a": "1"}, ALL_HCAS),
    "its VF alone": ({}, {}, []),
}


@pytest.mark.parametrize(("of_container", "asks", "expected"), SEES.values(), ids=SEES.keys())
def test_pod_of_the_hosts_network_sees_as_many_hcas_as_before(
    of_container: dict[str, Any], asks: dict[str, str], expected: list[tuple[str, str]]
):
    pod = a_pod(hostNetwork=True, labels=ON, asks=asks)
    pod["spec"]["containers"][0] |= of_container

    decision = decided(pod)

    assert isinstance(decision, Additions)
    assert [(variable.name, variable.value) for variable in decision.variables] == expected


def test_own_list_of_hcas_of_a_pod_of_the_hosts_network_stays():
    pod = a_pod(hostNetwork=True, labels=ON)
    own = [{"name": "NCCL_IB_HCA", "value": "mlx5_0"}, {"name": "UCX_NET_DEVICES", "value": "mlx5_0:1"}]
    pod["spec"]["containers"][0] |= {"securityContext": {"privileged": True}, "env": own}

    decision = decided(pod)

    assert isinstance(decision, Additions)
    assert decision.variables == ()
