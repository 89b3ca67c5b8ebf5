"""The manifests of the gang controller: they switch it on, and give exactly the rights that it uses beyond those of the controllers."""

from collections.abc import Mapping
from typing import Any

from railnet.__main__ import _parser
from railnet.apiserver.client import Answer
from railnet.apiserver.request import ApiGroup, ApiObject, Request, ServerVersion
from railnet.controllers.gangs.evictions import STUCK_SECONDS
from tests.daemonset.kustomized import ROOT, kustomized
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader
from tests.railnet.controllers.gangs.test_evictions import place_and_take

JsonObject = dict[str, Any]
FOLDER, BELOW = "overlays/gangs", "overlays/controllers"
ACCOUNT, NAME = "railnet-controllers", "railnet-controllers-gangs"
Right = tuple[str, str, str]


class Used(GangCluster):
    """The API server in memory, which also notes the right that each request needs."""

    def __init__(self) -> None:
        super().__init__()
        self.rights: set[Right] = set()

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        about = request.about
        assert not isinstance(about, ApiGroup | ServerVersion)
        below = f"/{about.subresource}" if isinstance(about, ApiObject) and about.subresource else ""
        self.rights.add((about.api_version.rpartition("/")[0], about.resource + below, request.verb.right))
        return super().exchange(request, headers, most_bytes)


def used() -> set[Right]:
    """Return the rights that the controller needs for a gang that is placed, and evicted again."""
    cluster = Used()
    for leaf in "ab":
        for number in range(4):
            cluster.add_node(f"{leaf}-{number}", leaf)
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    cluster.now += STUCK_SECONDS
    leader.settle()
    assert [reason for reason, _, _ in cluster.events] == ["GangPlaced", "GangEvicted"]
    watched = {
        (informer._about.api_version.rpartition("/")[0], informer._about.resource, verb)
        for informer in leader.gangs.informers.values()
        for verb in ("list", "watch")
    }
    return cluster.rights | watched


def rights(folder: str, account: str = ACCOUNT) -> set[Right]:
    found = kustomized(folder)
    roles = {
        one["roleRef"]["name"]
        for one in found
        if one["kind"] == "ClusterRoleBinding" and account in [subject["name"] for subject in one["subjects"]]
    }
    return {
        (group, resource, verb)
        for one in found
        if one["kind"] == "ClusterRole" and one["metadata"]["name"] in roles
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_overlay_adds_exactly_the_rights_that_gangs_use() -> None:
    given = rights(BELOW)

    assert rights(FOLDER) - given == used() - given


def test_without_the_overlay_no_pod_can_be_changed_or_evicted() -> None:
    assert {verb for _, resource, verb in rights(BELOW) if resource.startswith("pods")} == {"list", "watch"}


def test_rights_are_bound_to_the_controllers_account() -> None:
    (binding,) = (
        one for one in kustomized(FOLDER) if (one["kind"], one["metadata"]["name"]) == ("ClusterRoleBinding", NAME)
    )

    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", NAME)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "railnet"}]


def test_overlay_switches_the_controller_on_and_changes_nothing_else_of_it() -> None:
    below, with_it = (
        {(one["kind"], one["metadata"]["name"]): one for one in kustomized(folder)} for folder in (BELOW, FOLDER)
    )
    changed = [key for key, one in below.items() if with_it[key] != one]
    (container,) = with_it["Deployment", ACCOUNT]["spec"]["template"]["spec"]["containers"]
    (before,) = below["Deployment", ACCOUNT]["spec"]["template"]["spec"]["containers"]

    assert changed == [("Deployment", ACCOUNT)]
    assert container == {**before, "args": ["controllers", "--gangs"]}
    assert _parser().parse_args(container["args"]).gangs is True
    assert _parser().parse_args(before["args"]).gangs is False


def test_each_right_has_its_reason_beside_it() -> None:
    text = (ROOT / FOLDER / "controllers/role.yaml").read_text().partition("---")[0]
    verbs = [
        line for line in text.splitlines() if line.lstrip().startswith(("- ", "verbs: [")) and "apiGroups" not in line
    ]

    assert verbs
    assert [line for line in verbs if "#" not in line] == []
