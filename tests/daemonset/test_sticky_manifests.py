"""The manifests of sticky addresses: the controllers get the nodes' configuration, and exactly the rights that they use for addresses."""

from typing import Any

from railnet.controllers.sticky_table import NAME
from tests.daemonset.kustomized import kustomized
from tests.railnet.controllers.sticky_cluster import Cluster
from tests.railnet.controllers.test_sticky_addresses import a_leader

FOLDER, ACCOUNT = "overlays/controllers-sticky", "railnet-controllers"


def of_kind(kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in kustomized(FOLDER) if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def used() -> set[str]:
    """Return the requests of a leader that assigns addresses to a job, and releases them."""
    cluster = Cluster()
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))
    leader = a_leader(cluster)
    leader.work()
    cluster.objects.clear()
    cluster.make_pod("mnist-1", 1, cluster.make_job("other"), job="other")
    second = a_leader(cluster)
    second.work()
    cluster.make_pod("mnist-2", 2, cluster.make_job("another"), job="another")
    second.work()
    return {
        request for request in cluster.requests if request != "get jobs"
    }  # overlays/controllers lets them read roots


def test_rights_are_those_that_are_used():
    rules = [rule for kind in ("ClusterRole", "Role") for rule in of_kind(kind, "railnet-controllers-sticky")["rules"]]
    granted = {
        f"{verb} {resource.partition('/')[0]}"
        for rule in rules
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }

    assert granted == used() == {"get configmaps", "create configmaps", "update configmaps", "patch pods"}
    assert [rule.get("resourceNames") for rule in rules] == [None, None, [NAME]]
    assert rules[0]["resources"] == ["pods/status"]


def test_controllers_read_the_configuration_of_the_nodes():
    controllers, node = (
        of_kind(kind, name)["spec"]["template"]["spec"]
        for kind, name in (("Deployment", ACCOUNT), ("DaemonSet", "railnet"))
    )
    names = [one["configMap"]["name"] for spec in (controllers, node) for one in spec["volumes"] if "configMap" in one]

    assert len(names) == 2
    assert len(set(names)) == 1
    assert controllers["containers"][0]["volumeMounts"][0]["mountPath"] == "/etc/railnet"
