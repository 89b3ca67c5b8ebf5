"""The chart with controllers.stickyAddresses: the controllers get the nodes' configuration, and exactly the rights that they use for addresses."""

import pytest

from railnet.configuration import parse
from railnet.controllers.sticky_table import NAME
from railnet.vf.permitted_networks import StickyIpam
from tests.charts import features
from tests.charts.rendered import node_yaml, of_kind, rendered
from tests.railnet.controllers.sticky_cluster import Cluster
from tests.railnet.controllers.test_sticky_addresses import a_leader

pytestmark = pytest.mark.slow

ACCOUNT = "railnet-controllers"


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
    }  # controllers/role.yaml lets them read roots


def test_rights_are_those_that_are_used():
    rules = [
        rule
        for kind in ("ClusterRole", "Role")
        for rule in of_kind(rendered(**features.STICKY), kind, "railnet-controllers-sticky")["rules"]
    ]
    granted = {
        f"{verb} {resource.partition('/')[0]}"
        for rule in rules
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }

    assert granted == used() == {"get configmaps", "create configmaps", "update configmaps", "patch pods"}
    assert [rule.get("resourceNames") for rule in rules] == [None, None, [NAME]]
    assert rules[0]["resources"] == ["pods/status"]


def test_network_of_the_values_is_one_of_every_node():
    values = {"controllers.stickyAddresses.network": "steady", "controllers.stickyAddresses.rails": 2}
    network = parse(node_yaml(rendered(**features.STICKY, **values)), "node.yaml").networks.by_name["steady"]

    assert isinstance(network.ipam, StickyIpam)
    assert (str(network.ipam.range), network.ipam.rails) == ("10.58.0.0/16", 2)


def test_each_namespace_may_use_the_network_beside_its_own():
    limits = {"*": {"static": True}, "team-a": {"networks": ["verbs"]}, "team-b": {"networks": ["staying", "default"]}}
    values = {"node.configuration": {"networks": {"verbs": {"ipam": {"type": "none"}}}, "limits": limits}}
    known = parse(node_yaml(rendered(**values, **features.STICKY)), "node.yaml").networks.limits

    assert {namespace: limit.networks for namespace, limit in known.items()} == {
        "*": ("default", "staying"),
        "team-a": ("verbs", "staying"),
        "team-b": ("staying", "default"),
    }
    assert known["*"].static is True
