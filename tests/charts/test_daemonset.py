"""The node's part: daemonset/ is what the chart renders, both fit the code, and each privilege has its reason."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cni.host import lock
from railnet import VERSION
from railnet.__main__ import _HEALTH_PORT, _parser
from railnet.configuration import Configuration, HostConfiguration, parse
from tests.charts import features
from tests.charts.rendered import CHART, NAMESPACE, ROOT, JsonObject, by_name, kustomized, of_kind, rendered

RENDERED: dict[str, features.Values | None] = {
    "daemonset/": None,
    "the chart": {},
    "the chart with all of a node's features": {**features.TOPOLOGY_LABELS, **features.RAILS_TAINT},
}
EACH = pytest.mark.parametrize("values", RENDERED.values(), ids=RENDERED.keys())
DEFAULT = Configuration()


def documents(values: features.Values | None) -> list[JsonObject]:
    return kustomized() if values is None else rendered(**values)


def pod(values: features.Values | None = None) -> dict[str, Any]:
    found: dict[str, Any] = of_kind(documents(values), "DaemonSet", "railnet")["spec"]["template"]["spec"]
    return found


def containers(values: features.Values | None = None) -> list[dict[str, Any]]:
    return [*pod(values)["initContainers"], *pod(values)["containers"]]


@pytest.mark.slow
def test_folder_is_what_the_script_writes_from_the_chart(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts/render-daemonset", tmp_path], check=True)

    fresh = {path.name: path.read_text() for path in tmp_path.iterdir()}

    assert fresh == {name: (ROOT / "daemonset" / name).read_text() for name in fresh}, "run scripts/render-daemonset"
    resources = of_folder("kustomization.yaml")
    assert set(fresh) == {"node.yaml", *resources} - {"namespace.yaml"}


def of_folder(name: str) -> list[str]:
    return re.findall(r"^- (\S+\.yaml)$", (ROOT / "daemonset" / name).read_text(), re.MULTILINE)


@pytest.mark.slow
def test_folder_has_every_object_of_the_charts_defaults_but_the_hook() -> None:
    """The ConfigMap has a hash of its content in its name, so the DaemonSet has it, too."""
    of_chart = [one for one in rendered() if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    plain = by_name(kustomized())
    (namespace,) = (name for kind, name in plain if kind == "Namespace")

    assert namespace == NAMESPACE
    differing = [key for key, one in by_name(of_chart).items() if plain.get(key) != one]
    assert differing == [("ConfigMap", "railnet-node"), ("DaemonSet", "railnet")]
    assert len(plain) == len(of_chart) + 1


@pytest.mark.slow
@EACH
def test_all_objects_are_in_one_namespace(values: features.Values | None) -> None:
    namespaced = {
        one["kind"]: one["metadata"]["namespace"] for one in documents(values) if "namespace" in one["metadata"]
    }

    assert set(namespaced.values()) == {NAMESPACE}
    assert namespaced.keys() >= {"ConfigMap", "DaemonSet", "ServiceAccount"}
    cluster_wide = {one["kind"] for one in documents(values)} - namespaced.keys() - {"Namespace"}
    policy = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert cluster_wide == {"ClusterRole", "ClusterRoleBinding"} | policy


@pytest.mark.slow
@EACH
def test_image_has_this_version(values: features.Values | None) -> None:
    assert {container["image"] for container in containers(values)} == {f"railnet.io/railnet:{VERSION}"}


@pytest.mark.slow
@EACH
def test_arguments_are_commands_of_the_command_line(values: features.Values | None) -> None:
    commands = {container["name"]: _parser().parse_args(container["args"]).command for container in containers(values)}

    assert commands == {"install": "install", "railnet": "node"}


@pytest.mark.slow
@EACH
def test_configuration_is_valid_and_mounted_where_the_command_reads_it(values: features.Values | None) -> None:
    (volume,) = (volume for volume in pod(values)["volumes"] if volume["name"] == "configuration")
    config_map = of_kind(documents(values), "ConfigMap", volume["configMap"]["name"])

    parse(config_map["data"]["node.yaml"], "node.yaml")
    for container in containers(values):
        (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "configuration")
        assert Path(mount["mountPath"], "node.yaml") == _parser().parse_args(container["args"]).config


@pytest.mark.slow
@EACH
def test_every_configured_path_is_mounted_from_the_host(values: features.Values | None) -> None:
    (daemon,) = pod(values)["containers"]
    sources = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod(values)["volumes"]}
    mounted = {mount["mountPath"]: sources[mount["name"]] for mount in daemon["volumeMounts"]}
    paths: HostConfiguration = DEFAULT.host
    needed = [
        lock.RUN,
        str(paths.sysfs),
        str(paths.device_plugins),
    ]

    assert {path: mounted.get(path) for path in needed} == {path: path for path in needed}
    assert sorted(mounted) == sorted([*needed, "/etc/railnet"])
    assert (str(paths.root), pod(values)["hostPID"]) == ("/proc/1/root", True)


@pytest.mark.slow
@EACH
def test_only_folders_that_the_daemon_writes_are_writable(values: features.Values | None) -> None:
    (daemon,) = pod(values)["containers"]

    writable = {mount["mountPath"] for mount in daemon["volumeMounts"] if not mount.get("readOnly")}

    assert writable == {lock.RUN, "/sys"}


@pytest.mark.slow
@EACH
def test_probes_use_the_daemons_health_port(values: features.Values | None) -> None:
    (daemon,) = pod(values)["containers"]

    asked = {
        daemon[f"{kind}Probe"]["httpGet"]["path"]: daemon[f"{kind}Probe"]["httpGet"]
        for kind in ("liveness", "readiness")
    }

    assert sorted(asked) == ["/healthz", "/readyz"]
    assert {(probe["host"], probe["port"]) for probe in asked.values()} == {("127.0.0.1", _HEALTH_PORT)}
    assert "ports" not in daemon


@pytest.mark.slow
@EACH
def test_pod_is_guaranteed_and_takes_no_whole_cpu(values: features.Values | None) -> None:
    for container in containers(values):
        resources = container["resources"]
        assert resources["requests"] == resources["limits"]
        assert re.fullmatch(r"\d{1,3}m", resources["limits"]["cpu"])


def test_pod_is_on_every_node_and_stays_there() -> None:
    assert pod()["tolerations"] == [{"operator": "Exists"}]
    assert pod()["priorityClassName"] == "system-node-critical"
    assert pod()["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert "affinity" not in pod()


def test_grace_period_is_long_enough_for_requests_that_have_begun() -> None:
    timeouts = DEFAULT.timeouts

    assert pod()["terminationGracePeriodSeconds"] >= timeouts.add + timeouts.delegate


def test_apparmor_profile_is_a_field_and_no_annotation() -> None:
    """kube-apiserver 1.30 and newer warn of an AppArmor annotation (kubernetes/kubernetes, pkg/api/pod/warnings.go)."""
    metadata = of_kind(kustomized(), "DaemonSet", "railnet")["spec"]["template"]["metadata"]

    assert pod()["securityContext"]["appArmorProfile"] == {"type": "Unconfined"}
    assert metadata["annotations"].keys() == {"railnet.io/configuration"}


def test_account_may_write_status_and_events_and_remove_slices() -> None:
    account, role, binding = (
        of_kind(kustomized(), kind, "railnet") for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    )

    assert account["automountServiceAccountToken"] is True
    assert pod()["serviceAccountName"] == account["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert (subject["kind"], subject["name"], subject["namespace"]) == (
        "ServiceAccount",
        account["metadata"]["name"],
        account["metadata"]["namespace"],
    )
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", role["metadata"]["name"])
    assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        ([""], ["pods/status"], ["patch"]),
        ([""], ["events"], ["create", "patch"]),
        (["resource.k8s.io"], ["resourceslices"], ["list", "delete"]),
    ]


def test_daemon_gets_its_nodes_name() -> None:
    (daemon,) = pod()["containers"]

    assert daemon["env"] == [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]


PRIVILEGES = r"^\s*(- [A-Z_]+|hostNetwork: \w+|hostPID: \w+|hostIPC: \w+|type: spc_t|type: Unconfined|runAsUser: \w+|privileged: \w+)\s*(#.*)?$"


def test_each_privilege_has_its_reason_beside_it() -> None:
    lines = (ROOT / "daemonset/daemonset.yaml").read_text().splitlines()
    found = [match for line in lines if (match := re.match(PRIVILEGES, line))]

    assert [match[1] for match in found if not (match[2] or "").strip("# ")] == []
    capabilities = [name for container in containers() for name in container["securityContext"]["capabilities"]["add"]]
    assert sorted(match[1] for match in found if match[1][2:].replace("_", "").isupper()) == sorted(
        f"- {name}" for name in capabilities
    )


def test_each_folder_of_the_host_has_its_reason_beside_it() -> None:
    text = (ROOT / "daemonset/daemonset.yaml").read_text()

    with_reason = re.findall(r"^ {6}- name: (\S+) # .+\n +hostPath:", text, re.MULTILINE)

    assert with_reason == [volume["name"] for volume in pod()["volumes"] if "hostPath" in volume]


def test_the_one_privileged_container_of_the_chart_has_its_reason_above_it() -> None:
    templates = {path.name: path.read_text() for path in CHART.rglob("templates/**/*.yaml")}
    named = [name for name, text in templates.items() if re.search(r"^ *privileged: true", text, re.MULTILINE)]

    assert named == ["daemonset.yaml"]
    above = re.findall(r"^ *# .+\n *privileged: true\n", templates["daemonset.yaml"], re.MULTILINE)
    assert len(above) == 1


@pytest.mark.slow
@EACH
def test_all_containers_drop_what_they_do_not_name(values: features.Values | None) -> None:
    labels = "topologyLabels.enabled" in (values or {})

    for container in containers(values):
        context = container["securityContext"]
        assert context.get("privileged", False) is (labels and container["name"] == "railnet")
        assert context["capabilities"]["drop"] == ["ALL"]
        assert context["readOnlyRootFilesystem"]
