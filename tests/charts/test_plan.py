"""The values that `railnet plan` proposes: the chart takes them, and each group gets the configuration that was meant."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet.config_check.file_check import check
from railnet.configuration import parse
from railnet.plan.node_facts import SeenNode, UnseenNode
from railnet.plan.values_text import lines
from railnet.vf.permitted_networks import SliceIpam
from tests.charts.rendered import CHART, NAMESPACE, helm, node_yaml, of_kind
from tests.railnet.plan.applied import Applied, documents_of
from tests.railnet.plan.reports import COMPUTE, FOUR, eight, four, lone, pf, planned, report, seen

pytestmark = pytest.mark.slow

CLUSTERS: dict[str, tuple[SeenNode, ...]] = {
    "two kinds": (seen("gpu", eight()), seen("old", four(pkeys=["0xffff", "0x8001"]), 4)),
    "one kind": (seen("gpu-0", four()), seen("gpu-1", four())),
    "virtual machines": (seen("vm", report(lone_vfs=[lone("0000:03:00.0")])),),
    "without cards": (seen("cpu", report()),),
    "storage of one model": (seen("a", report(pf("0000:13:00.0"), pf("0000:29:00.0", rate="200"))),),
}


def rendered(text: str, folder: Path, before: str = "{}") -> list[dict[str, Any]]:
    """Return what the chart renders with a values file over the values before."""
    old, file = folder / "before.yaml", folder / "values.yaml"
    old.write_text(before)
    file.write_text(text)
    done = helm("template", "railnet", CHART, "--namespace", NAMESPACE, "--values", old, "--values", file)
    assert (done.returncode, done.stderr) == (0, "")
    return [document for document in yaml.safe_load_all(done.stdout) if document is not None]


@pytest.mark.parametrize("nodes", CLUSTERS.values(), ids=CLUSTERS.keys())
def test_chart_renders_the_file_and_the_daemon_accepts_each_configuration(
    nodes: tuple[SeenNode, ...], tmp_path: Path
) -> None:
    proposal = planned(*nodes)
    text = "\n".join(lines(proposal, nodes, ()))
    documents = rendered(text, tmp_path)
    groups = proposal.values["node"].get("groups", [])

    assert [remark for remark in check(text) if remark.level != "note"] == []
    for name in ("", *(group["name"] for group in groups)):
        parse(node_yaml(documents, f"railnet-node{name and f'-{name}'}"), name)


def test_groups_get_their_rails_vfs_and_nodes(tmp_path: Path) -> None:
    nodes = CLUSTERS["two kinds"]
    documents = rendered("\n".join(lines(planned(*nodes), nodes, ())), tmp_path)

    for name, addresses, vfs in (("8x400g", COMPUTE, 8), ("4x200g", FOUR, 4)):
        configuration = parse(node_yaml(documents, f"railnet-node-{name}"), name)
        assert tuple(map(str, configuration.rails or ())) == addresses
        assert [entry.vfs for entry in configuration.provision] == [vfs]
        ipam = configuration.networks.by_name["default"].ipam
        assert isinstance(ipam, SliceIpam)
        assert ipam.rails == 8
        spec = json.loads(json.dumps(of_kind(documents, "DaemonSet", f"railnet-{name}")))["spec"]["template"]["spec"]
        assert spec["nodeSelector"]["railnet.io/node-group"] == name


BEFORE = f"""
node:
  configuration:
    networks: {{default: {{ipam: {{type: slice, range: 10.56.0.0/16, rails: 8}}}}}}
    rails: {{select: {{pfDevice: ["1021"], numaNode: [0]}}}}
    provision: [{{select: {{pfDevice: ["1021"]}}, vfs: 8}}]
  groups:
  - name: four
    nodeSelector: {{railnet.io/node-group: four}}
    configuration:
      rails: {list(FOUR)!r}
      provision: [{{select: {{pfDevice: ["101b"]}}, vfs: 8}}]
      memlock: unlimited
  - {{name: other, nodeSelector: {{rack: "9"}}, configuration: {{memlock: 64Gi, provision: [], rails: auto}}}}
"""
LABEL = {"railnet.io__node-group": "four"}
OTHER_MODEL = report(*(pf(address, model="15b3:101b", rate="200") for address in COMPUTE), rails=[])
PLANS: dict[str, Applied] = {
    "groups": Applied(BEFORE, seen("a", four(), **LABEL), seen("b", eight(rails=COMPUTE)), seen("c", OTHER_MODEL)),
    "one configuration": Applied(BEFORE, seen("b", eight(rails=COMPUTE)), vfs=16),
    "of a selector": Applied(BEFORE, seen("a", four(), **LABEL), unasked={"d": {"rack": "9"}}, vfs=16),
    "a group that stays": Applied(BEFORE, seen("b", eight(rails=COMPUTE)), unseen=[UnseenNode("d", "", {"rack": "9"})]),
    "without groups": Applied("node: {}", seen("b", eight(rails=COMPUTE))),
}


@pytest.mark.parametrize("applied", PLANS.values(), ids=PLANS.keys())
def test_values_over_those_before_give_each_group_what_is_shown(applied: Applied, tmp_path: Path) -> None:
    text = "\n".join(lines(applied.proposal, applied.nodes, applied.unseen))
    documents = rendered(text, tmp_path, before=yaml.safe_dump(applied.values))
    config_maps = {group: f"railnet-node{group and f'-{group}'}" for group in documents_of(applied.after)}

    assert {one["metadata"]["name"] for one in documents if one["kind"] == "ConfigMap"} >= set(config_maps.values())
    for group, document in documents_of(applied.after).items():
        told = yaml.safe_load(node_yaml(documents, config_maps[group]))
        assert {key: told.get(key) for key in told.keys() - {"apiVersion", "kind"}} == document
        parse(node_yaml(documents, config_maps[group]), group)


@pytest.mark.parametrize("name", ["n", "y", "no", "yes", "on", "off", "true", "null", "1e3", "0x10", "1-1-1"])
def test_name_of_a_group_is_text_for_helm(name: str, tmp_path: Path) -> None:
    nodes = (seen("a", four(), **{"railnet.io__node-group": name}), seen("b", eight(rails=COMPUTE)))
    documents = rendered("\n".join(lines(planned(*nodes), nodes, ())), tmp_path)

    template = of_kind(documents, "DaemonSet", f"railnet-{name}")["spec"]["template"]
    assert template["spec"]["nodeSelector"]["railnet.io/node-group"] == name
    assert template["metadata"]["labels"]["railnet.io/node-group"] == name
