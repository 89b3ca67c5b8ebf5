"""What a bundle takes is a list: a secret stays where it is, wherever an object has it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet.bundle import allowed
from tests.railnet.bundle.planted_secret import PLANTED, planted
from tests.railnet.vf.builders import a_record, an_attachment

PAGE = Path(__file__).resolve().parents[3] / "docs/configuration.md"
NODE = {
    "metadata": {"name": "a", "uid": "u", "labels": {"railnet.io/leaf": "1", "team.example/key": PLANTED}},
    "spec": {"podCIDR": "10.244.3.0/24", "taints": [{"key": "gpu", "effect": "NoSchedule", "value": PLANTED}]},
    "status": {
        "allocatable": {"rdma/ib_vf": "8"},
        "capacity": {"rdma/ib_vf": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.37.0", "machineID": PLANTED, "systemUUID": PLANTED, "bootID": PLANTED},
        "images": [{"names": [PLANTED]}],
    },
}


def test_node_has_its_versions_resources_and_conditions() -> None:
    assert allowed.node(NODE) == {
        "metadata": {"name": "a", "uid": "u", "labels": {"railnet.io/leaf": "1"}},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"rdma/ib_vf": "8"},
            "capacity": {"rdma/ib_vf": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.37.0"},
        },
    }


@pytest.mark.parametrize(
    "document", [{}, {"status": []}, {"metadata": None, "spec": "x"}, {"status": {"allocatable": 1}}]
)
def test_object_of_another_form_gives_nothing(document: dict[str, Any]) -> None:
    assert allowed.node(document) == {}
    assert allowed.taken(document, allowed.POD) == {}


def test_pod_has_no_environment_no_command_and_no_annotation() -> None:
    pod = planted(
        {
            "metadata": {"name": "p", "namespace": "railnet"},
            "spec": {"nodeName": "a", "containers": [{"name": "railnet", "image": "i"}], "volumes": [{}]},
            "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "railnet", "restartCount": 2, "state": {"waiting": {"reason": "x"}}}],
            },
        }
    )

    found = allowed.taken(pod, allowed.POD)

    assert PLANTED in json.dumps(pod)
    assert PLANTED not in json.dumps(found)
    assert found["spec"] == {"nodeName": "a", "containers": [{"name": "railnet", "image": "i"}]}
    assert found["status"]["containerStatuses"][0] == {
        "name": "railnet",
        "restartCount": 2,
        "state": {"waiting": {"reason": "x"}},
    }


def test_configuration_has_how_a_network_is_made_and_no_value_of_another_key() -> None:
    calico = {
        "name": "k8s",
        "cniVersion": "1.0.0",
        "plugins": [
            {
                "type": "calico",
                "mtu": 1450,
                "etcd_key_file": PLANTED,
                "policy": {"type": "k8s", "k8s_auth_token": PLANTED},
                "kubernetes": {"kubeconfig": PLANTED},
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16"}]], "password": PLANTED},
                "sysctl": {"net.x": PLANTED},
            }
        ],
    }

    found = allowed.configuration(calico)

    assert PLANTED not in json.dumps(found)
    plugin = found["plugins"][0]
    assert (plugin["type"], plugin["mtu"], plugin["ipam"]["ranges"]) == ("calico", 1450, [[{"subnet": "10.1.0.0/16"}]])
    assert (plugin["etcd_key_file"], plugin["policy"], plugin["ipam"]["password"]) == (allowed.LEFT_OUT,) * 3


def test_node_yaml_keeps_the_names_of_networks_and_namespaces() -> None:
    document = {
        "provision": [{"select": {"numaNode": [0]}, "vfs": 8}],
        "networks": {"leased": {"mtu": 2044, "ipam": {"type": "x", "token": PLANTED}}},
        "limits": {"team-a": {"networks": ["leased"], "static": True}},
        "admission": {"priorityClass": "iteration"},
    }

    found = allowed.configuration(document)

    assert found == {**document, "networks": {"leased": {"mtu": 2044, "ipam": {"type": "x", "token": "(left out)"}}}}


def test_each_key_of_the_page_of_node_yaml_is_taken() -> None:
    document = yaml.safe_load(PAGE.read_text().partition("```yaml\n")[2].partition("```")[0])

    assert allowed.configuration(document) == document
    assert document.keys() >= {"memlock", "admission"}


@pytest.mark.parametrize("value", [f"TOKEN={PLANTED}", [f"TOKEN={PLANTED}"], {"name": PLANTED}, [{"mode": PLANTED}]])
def test_variables_of_a_plugin_are_left_out(value: Any) -> None:
    assert allowed.configuration({"type": "x", "environment": value}) == {"type": "x", "environment": "(left out)"}


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (f"http://user:{PLANTED}@etcd:2379/a", "http://(left out)@etcd:2379/a"),
        (f"https://{PLANTED}@etcd", "https://(left out)@etcd"),
        (f"etcd+HTTP://a:{PLANTED}@@/{PLANTED}@etcd,b", "etcd+HTTP://(left out)@etcd,b"),
        (f"a http://a:{PLANTED}@b c://d:{PLANTED}@e", "a http://(left out)@b c://(left out)@e"),
        ("http://etcd:2379/a", "http://etcd:2379/a"),
        ("me@etcd", "me@etcd"),
    ],
)
def test_user_and_password_of_a_url_are_left_out(value: str, taken: str) -> None:
    document = {"plugins": [{"master": value, "ipam": {"addresses": [value]}}]}

    assert allowed.configuration(document) == {"plugins": [{"master": taken, "ipam": {"addresses": [taken]}}]}


def test_record_has_its_rails_and_not_the_configurations() -> None:
    record = a_record(an_attachment(), primary={"name": PLANTED, "runtimeConfig": {"bandwidth": PLANTED}})

    found = allowed.record(record)

    assert PLANTED not in json.dumps(found)
    assert found["attachments"][0]["vf"] == str(record.attachments[0].vf)


def test_kubelets_devices_have_no_response_with_an_environment() -> None:
    entry = {"ContainerName": "main", "AllocResp": PLANTED, "PodUID": "u"}

    assert allowed.devices([("u", "rdma/ib_vf", {"b", "a"}, entry)]) == [
        {"pod_uid": "u", "container": "main", "resource": "rdma/ib_vf", "devices": ["a", "b"]}
    ]
