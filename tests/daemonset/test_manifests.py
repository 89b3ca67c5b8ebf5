"""The manifests: kubectl renders them without a warning, they fit the code, and each privilege has its reason."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cni.host import lock
from railnet import VERSION
from railnet.__main__ import _HEALTH_PORT, _parser
from railnet.configuration import Configuration, HostConfiguration, parse
from tests.daemonset.kustomized import FOLDERS, ROOT, kustomized
from tests.daemonset.kustomized import rendered as rendered_by_kubectl

BESIDE_THE_DAEMON = re.compile(
    "admission|controllers|dns-autoscaler|gangs|host-network|monitoring|priorities"
)  # what installs nothing on a node
RENDERED = [folder for folder in FOLDERS if not BESIDE_THE_DAEMON.search(folder)]
SET_FOR_1_30 = (
    "kubernetes-1.30",
    "kubernetes-1.30-admission",
    "kubernetes-1.30-uninstall",
    "own-node",
    "own-node-admission",
    "rails-condition",
    "rails-condition-taint",
    "rails-condition-uninstall",
    "topology-labels",
    "topology-labels-uninstall",
)
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
DEFAULT = Configuration()


def rendered(folder: str) -> dict[str, dict[str, Any]]:
    """Return the documents that `kubectl apply -k` sends, by kind."""
    documents = kustomized(folder)
    assert len({(document["kind"], document["metadata"]["name"]) for document in documents}) == len(documents)
    return {document["kind"]: document for document in documents}


def pod(folder: str = "daemonset") -> dict[str, Any]:
    found: dict[str, Any] = rendered(folder)["DaemonSet"]["spec"]["template"]["spec"]
    return found


def containers(folder: str) -> list[dict[str, Any]]:
    return [*pod(folder).get("initContainers", []), *pod(folder)["containers"]]


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_kubectl_renders_the_folder_without_a_warning(folder: str) -> None:
    assert rendered_by_kubectl(folder)[1] == ""


@pytest.mark.slow
def test_set_for_1_30_has_no_annotation_that_it_deprecates() -> None:
    """kube-apiserver 1.30 and newer warn of an AppArmor annotation (kubernetes/kubernetes, pkg/api/pod/warnings.go)."""
    of_set = ("overlays/kubernetes-1.30", "overlays/own-node", "overlays/rails-condition", "overlays/topology-labels")
    named = [folder for folder in FOLDERS if folder.startswith(of_set)]
    annotated = [folder for folder in named if "apparmor.security.beta" in yaml.safe_dump_all(kustomized(folder))]

    assert named == [f"overlays/{name}" for name in SET_FOR_1_30]
    assert annotated == []


@pytest.mark.parametrize("folder", RENDERED)
def test_all_objects_are_in_one_namespace(folder: str) -> None:
    documents = rendered(folder)

    namespace = documents.pop("Namespace")["metadata"]["name"]
    namespaced = {kind for kind, document in documents.items() if "namespace" in document["metadata"]}
    assert namespaced == {"ConfigMap", "DaemonSet", "ServiceAccount"}
    assert {documents[kind]["metadata"]["namespace"] for kind in namespaced} == {namespace}
    has_policy = re.search("own-node|rails-condition|topology-labels", folder) is not None
    policy = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} if has_policy else set()
    assert set(documents) - namespaced == {"ClusterRole", "ClusterRoleBinding"} | policy


@pytest.mark.parametrize("folder", RENDERED)
def test_image_has_this_version(folder: str) -> None:
    images = {container["image"] for container in containers(folder)}

    assert {image.rpartition(":")[2] for image in images} == {VERSION}


@pytest.mark.parametrize("folder", RENDERED)
def test_arguments_are_commands_of_the_command_line(folder: str) -> None:
    commands = {container["name"]: _parser().parse_args(container["args"]).command for container in containers(folder)}

    expected = {"railnet": "uninstall"} if "uninstall" in folder else {"install": "install", "railnet": "node"}
    assert commands == expected


def test_uninstall_keeps_running_when_it_is_done() -> None:
    for folder in (folder for folder in RENDERED if "uninstall" in folder):
        (container,) = containers(folder)
        assert _parser().parse_args(container["args"]).stay


@pytest.mark.parametrize("folder", RENDERED)
def test_configuration_is_valid_and_mounted_where_the_command_reads_it(folder: str) -> None:
    config_map = rendered(folder)["ConfigMap"]
    (volume,) = (volume for volume in pod(folder)["volumes"] if volume["name"] == "configuration")

    parse(config_map["data"]["node.yaml"], "node.yaml")
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    for container in containers(folder):
        (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "configuration")
        assert Path(mount["mountPath"], "node.yaml") == _parser().parse_args(container["args"]).config


def test_every_configured_path_is_mounted_from_the_host() -> None:
    (daemon,) = pod()["containers"]
    sources = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod()["volumes"]}
    mounted = {mount["mountPath"]: sources[mount["name"]] for mount in daemon["volumeMounts"]}
    paths: HostConfiguration = DEFAULT.host
    needed = [
        lock.RUN,
        str(paths.sysfs),
        *(f"{paths.kubelet}/{name}" for name in ("plugins_registry", "device-plugins", "pod-resources")),
    ]

    assert {path: mounted.get(path) for path in needed} == {path: path for path in needed}
    assert sorted(mounted) == sorted([*needed, "/etc/railnet"])
    assert (str(paths.root), pod()["hostPID"]) == ("/proc/1/root", True)


def test_only_folders_that_the_daemon_writes_are_writable() -> None:
    (daemon,) = pod()["containers"]

    writable = {mount["mountPath"] for mount in daemon["volumeMounts"] if not mount.get("readOnly")}

    assert writable == {lock.RUN, "/sys", "/var/lib/kubelet/plugins_registry"}


@pytest.mark.parametrize("folder", RENDERED)
def test_probes_use_the_daemons_health_port(folder: str) -> None:
    (daemon,) = pod(folder)["containers"]

    asked = {
        daemon[f"{kind}Probe"]["httpGet"]["path"]: daemon[f"{kind}Probe"]["httpGet"]
        for kind in ("liveness", "readiness")
    }

    assert sorted(asked) == ["/healthz", "/readyz"]
    assert {(probe["host"], probe["port"]) for probe in asked.values()} == {("127.0.0.1", _HEALTH_PORT)}
    assert "ports" not in daemon


@pytest.mark.parametrize("folder", RENDERED)
def test_pod_is_guaranteed_and_takes_no_whole_cpu(folder: str) -> None:
    for container in containers(folder):
        resources = container["resources"]
        assert resources["requests"] == resources["limits"]
        assert re.fullmatch(r"\d{1,3}m", resources["limits"]["cpu"])


def test_pod_is_on_every_node_and_stays_there() -> None:
    assert pod()["tolerations"] == [{"operator": "Exists"}]
    assert pod()["priorityClassName"] == "system-node-critical"


def test_grace_period_is_long_enough_for_requests_that_have_begun() -> None:
    timeouts = DEFAULT.timeouts

    assert pod()["terminationGracePeriodSeconds"] >= timeouts.add + timeouts.delegate


@pytest.mark.parametrize("folder", RENDERED)
def test_apparmor_names_exactly_the_pods_containers(folder: str) -> None:
    """Check the annotations or the pod's field; the API server refuses a pod whose annotation names another container."""
    annotations = rendered(folder)["DaemonSet"]["spec"]["template"]["metadata"].get("annotations", {})
    field = pod(folder)["securityContext"].get("appArmorProfile")

    named = {key.removeprefix(APPARMOR) for key in annotations if key.startswith(APPARMOR)}

    assert named == (set() if field else {container["name"] for container in containers(folder)})
    assert {*annotations.values()} <= {"unconfined"}
    assert field == ({"type": "Unconfined"} if Path(folder).name in SET_FOR_1_30 else None)


def test_account_may_write_status_and_events_and_read_nothing() -> None:
    documents = rendered("daemonset")
    account, role, binding = (documents[kind] for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding"))

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
    ]


def test_daemon_gets_its_nodes_name() -> None:
    (daemon,) = pod()["containers"]

    assert daemon["env"] == [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]


PRIVILEGES = r"^\s*(- [A-Z_]+|hostNetwork: \w+|hostPID: \w+|hostIPC: \w+|type: spc_t|runAsUser: \w+|privileged: \w+|- operator: Exists)\s*(#.*)?$"


def test_each_privilege_has_its_reason_beside_it() -> None:
    lines = (ROOT / "daemonset/daemonset.yaml").read_text().splitlines()
    found = [match for line in lines if (match := re.match(PRIVILEGES, line))]

    assert [match[1] for match in found if not (match[2] or "").strip("# ")] == []
    capabilities = [
        name for container in containers("daemonset") for name in container["securityContext"]["capabilities"]["add"]
    ]
    assert sorted(match[1] for match in found if match[1][2:].replace("_", "").isupper()) == sorted(
        f"- {name}" for name in capabilities
    )


def test_each_folder_of_the_host_has_its_reason_beside_it() -> None:
    text = (ROOT / "daemonset/daemonset.yaml").read_text()

    with_reason = re.findall(r"^ {6}- name: (\S+) # .+\n +hostPath:", text, re.MULTILINE)

    assert with_reason == [volume["name"] for volume in pod()["volumes"] if "hostPath" in volume]


def test_no_container_is_privileged_and_all_drop_what_they_do_not_name() -> None:
    for container in containers("daemonset"):
        context = container["securityContext"]
        assert "privileged" not in context
        assert context["capabilities"]["drop"] == ["ALL"]
        assert context["readOnlyRootFilesystem"]


def test_documents_apply_and_delete_only_existing_folders() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {
        folder
        for page in pages
        for folder in re.findall(r"kubectl (?:apply|delete) -k (\S+?)/?[\s`]", page.read_text())
    }

    assert {"daemonset", "overlays/uninstall", "overlays/admission"} <= named <= set(FOLDERS)
