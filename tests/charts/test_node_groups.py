"""Groups of nodes: each node has one daemon, with the configuration of its group; and a distribution's paths."""

import itertools
import json
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet.configuration import Configuration, HostConfiguration, parse
from railnet.vf.permitted_networks import NoIpam, SliceIpam, StickyIpam
from tests.charts import features
from tests.charts.distributions import HOSTS, paths
from tests.charts.rendered import CHART, JsonObject, by_name, container, node_yaml, of_kind, pod, rendered

pytestmark = pytest.mark.slow


def group(name: str, label: str, value: str, **keys: Any) -> JsonObject:
    return {"name": name, "nodeSelector": {label: value}, "configuration": keys}


GROUPS = {
    "by two labels": [group("gpu", "gpu", "true"), group("old", "generation", "3")],
    "by two values of a label": [group("a", "rack", "a"), group("b", "rack", "b")],
    "by none": [],
}


def daemon_sets(values: features.Values) -> list[str]:
    return [one["metadata"]["name"] for one in rendered(**values) if one["kind"] == "DaemonSet"]


def matches(spec: JsonObject, labels: dict[str, str]) -> bool:
    """Return whether the scheduler puts a pod onto a node with these labels (k8s.io/component-helpers, scheduling/corev1/nodeaffinity)."""
    if not spec["nodeSelector"].items() <= labels.items():
        return False
    if "affinity" not in spec:
        return True
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert {one["operator"] for one in term["matchExpressions"]} == {"NotIn"}
    return all(labels.get(one["key"]) not in one["values"] for one in term["matchExpressions"])


def label_sets(groups: list[JsonObject]) -> list[dict[str, str]]:
    """Return nodes with each combination of: no label, a group's value of it, and another value."""
    keys = sorted({key for one in groups for key in one["nodeSelector"]})
    choices = [[None, "other", *(one["nodeSelector"].get(key) for one in groups)] for key in keys]
    return [
        {key: value for key, value in zip(keys, combination, strict=True) if value is not None}
        for combination in itertools.product(*choices)
    ]


@pytest.mark.parametrize("common", [{}, {"feature.node.kubernetes.io/pci-15b3.present": "true"}], ids=["all", "some"])
@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS.keys())
def test_each_node_matches_one_daemon_set_that_of_its_first_group(
    groups: list[JsonObject], common: dict[str, str]
) -> None:
    values = {"node.groups": groups, "node.nodeSelector": common}
    specs = {name: pod(rendered(**values), "DaemonSet", name) for name in daemon_sets(values)}

    assert specs.keys() == {"railnet", *(f"railnet-{one['name']}" for one in groups)}
    for labels in label_sets(groups):
        first = next((one["name"] for one in groups if one["nodeSelector"].items() <= labels.items()), None)
        expected = "railnet" if first is None else f"railnet-{first}"
        node = {**common, **labels, "kubernetes.io/os": "linux"}
        assert [name for name, spec in specs.items() if matches(spec, node)] == [expected], node
        assert [name for name, spec in specs.items() if matches(spec, {**node, "kubernetes.io/os": "windows"})] == []
        if common:
            assert [name for name, spec in specs.items() if matches(spec, labels | {"kubernetes.io/os": "linux"})] == []


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS.keys())
def test_daemon_set_of_each_group_selects_its_pods_and_mounts_its_configuration(groups: list[JsonObject]) -> None:
    values = {"node.groups": groups}
    documents = rendered(**values)
    config_maps = []
    for name in daemon_sets(values):
        whole = of_kind(documents, "DaemonSet", name)
        labels = whole["spec"]["template"]["metadata"]["labels"]
        assert whole["spec"]["selector"]["matchLabels"] == labels
        assert labels["app.kubernetes.io/name"] == "railnet"
        (volume,) = (one for one in whole["spec"]["template"]["spec"]["volumes"] if "configMap" in one)
        config_maps.append(volume["configMap"]["name"])

    assert config_maps == [*(f"railnet-node-{one['name']}" for one in groups), "railnet-node"]
    assert {name for kind, name in by_name(documents) if kind == "ConfigMap"} == set(config_maps)


def configured(documents: list[JsonObject], group: str = "") -> Configuration:
    return parse(node_yaml(documents, f"railnet-node{group}"), "node.yaml")


def test_configuration_of_a_group_is_merged_into_that_of_all_nodes() -> None:
    of_all = {"publish": {"events": True}, "timeouts": {"add": "90s"}, "provision": [{"pf": "0000:03:00.0", "vfs": 8}]}
    own = group("gpu", "gpu", "true", publish={"events": False}, provision=[], limits={"*": {"pools": []}})

    documents = rendered(**features.TOPOLOGY_LABELS, **{"node.configuration": of_all, "node.groups": [own]})

    gpu, rest = (configured(documents, one) for one in ("-gpu", ""))
    assert (gpu.publish.events, gpu.timeouts.add, gpu.provision) == (False, 90.0, ())
    assert (rest.publish.events, rest.timeouts.add, len(rest.provision)) == (True, 90.0, 1)
    assert gpu.networks.limits["*"].pools == ()
    assert (gpu.publish.topology_labels, rest.publish.topology_labels) == (True, True)
    hashes = [
        of_kind(documents, "DaemonSet", name)["spec"]["template"]["metadata"]["annotations"]["railnet.io/configuration"]
        for name in ("railnet-gpu", "railnet")
    ]
    assert len(set(hashes)) == 2


def test_ipam_of_another_type_replaces_that_of_all_nodes() -> None:
    own = group("cpu", "cpu", "true", networks={"default": {"ipam": {"type": "none"}}})
    other = group("gpu", "gpu", "true", networks={"default": {"ipam": {"range": "10.57.0.0/16"}}})
    slices = {"default": {"mtu": 2044, "ipam": {"type": "slice", "range": "10.56.0.0/16"}}}
    sticky = {"staying": {"ipam": {"type": "static", "range": "10.59.0.0/16"}}}
    values = {"node.configuration": {"networks": {**slices, **sticky}}, "node.groups": [own, other]}

    documents = rendered(**values, **features.STICKY)

    networks = [configured(documents, name).networks.by_name for name in ("", "-cpu", "-gpu")]
    assert [one["default"].ipam for one in networks] == [
        SliceIpam(ip_network("10.56.0.0/16")),
        NoIpam(),
        SliceIpam(ip_network("10.57.0.0/16")),
    ]
    assert {one["default"].mtu for one in networks} == {2044}
    assert {one["staying"].ipam for one in networks} == {StickyIpam(ip_network("10.58.0.0/16"))}


def mounted_device_plugins(documents: list[JsonObject], name: str = "railnet") -> str:
    """Return the host's folder of kubelet's device plugins, which is at the same path in the container."""
    volumes = {volume["name"]: volume for volume in pod(documents, "DaemonSet", name)["volumes"]}
    mounts = {one["name"]: one["mountPath"] for one in container(documents, "DaemonSet", name)["volumeMounts"]}
    path: str = volumes["device-plugins"]["hostPath"]["path"]
    assert mounts["device-plugins"] == path
    return path


def test_kubelets_folders_are_those_of_the_group() -> None:
    values = {
        "node.configuration": {"host": {"kubelet": "/srv/kubelet"}},
        "node.groups": [group("gpu", "gpu", "true", host={"kubelet": "/mnt/kubelet", "devicePlugins": "/mnt/plugins"})],
    }
    documents = rendered(**values)

    for name, folder, device_plugins in (
        ("", "/srv/kubelet", "/var/lib/kubelet/device-plugins"),
        ("-gpu", "/mnt/kubelet", "/mnt/plugins"),
    ):
        assert mounted_device_plugins(documents, f"railnet{name}") == device_plugins
        assert configured(documents, name).host.kubelet == Path(folder)
        assert configured(documents, name).host.device_plugins == Path(device_plugins)


@pytest.mark.parametrize("distribution", HOSTS)
def test_distribution_has_its_paths_and_the_configuration_overrides_them(distribution: str) -> None:
    documents = rendered(distribution=distribution)
    overridden = rendered(distribution=distribution, **{"node.configuration": {"host": {"kubelet": "/srv/kubelet"}}})

    expected = HostConfiguration(**paths(distribution))
    assert configured(documents).host == expected
    assert mounted_device_plugins(documents) == "/var/lib/kubelet/device-plugins"
    assert configured(overridden).host == replace(expected, kubelet=Path("/srv/kubelet"))
    assert mounted_device_plugins(overridden) == "/var/lib/kubelet/device-plugins"


def test_schema_knows_exactly_the_distributions_that_have_paths() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert set(schema["properties"]["distribution"]["enum"]) == HOSTS.keys()


EXAMPLES = sorted(path.relative_to(CHART).as_posix() for path in (CHART / "examples").iterdir())


@pytest.mark.parametrize("number", range(1, len(EXAMPLES) + 1), ids=EXAMPLES)
def test_example_with_those_before_it_is_a_whole_configuration(number: int) -> None:
    documents = rendered(*EXAMPLES[:number])
    given = [yaml.safe_load((CHART / file).read_text()) for file in EXAMPLES[:number]]

    assert len(EXAMPLES) == 5
    keys = {key for one in given for key in one.get("node", {}).get("configuration", {})}
    assert keys <= yaml.safe_load(node_yaml(documents)).keys()
    configuration = configured(documents)
    assert [one.vfs for one in configuration.provision] == [8, 8]
    assert ("railnet-admission" in {one["metadata"]["name"] for one in documents}) is (number >= 2)


def test_selector_and_tolerations_may_be_any() -> None:
    values = {"node.nodeSelector": {"kubernetes.io/os": "linux", "card": "true"}, "node.tolerations": []}

    spec = pod(rendered(**values), "DaemonSet", "railnet")

    assert (spec["nodeSelector"], "tolerations" in spec) == ({"kubernetes.io/os": "linux", "card": "true"}, False)
