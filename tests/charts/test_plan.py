"""The values that `railnet plan` proposes: the chart takes them, and each group gets the configuration that was meant."""

import json
from pathlib import Path

import pytest
import yaml

from railnet.config_check.checked_file import check
from railnet.configuration import parse
from railnet.plan.node_facts import SeenNode
from railnet.plan.values_text import lines
from railnet.vf.permitted_networks import SliceIpam
from tests.charts.rendered import CHART, NAMESPACE, helm, node_yaml, of_kind
from tests.railnet.plan.reports import COMPUTE, FOUR, eight, four, lone, pf, planned, report, seen

pytestmark = pytest.mark.slow

CLUSTERS: dict[str, tuple[SeenNode, ...]] = {
    "two kinds": (seen("gpu", eight()), seen("old", four(pkeys=["0xffff", "0x8001"]), 4)),
    "one kind": (seen("gpu-0", four()), seen("gpu-1", four())),
    "virtual machines": (seen("vm", report(lone_vfs=[lone("0000:03:00.0")])),),
    "without cards": (seen("cpu", report()),),
    "storage of one model": (seen("a", report(pf("0000:13:00.0"), pf("0000:29:00.0", rate="200"))),),
}


def rendered(text: str, folder: Path) -> list[dict[str, object]]:
    """Return what the chart renders with a values file."""
    file = folder / "values.yaml"
    file.write_text(text)
    done = helm("template", "railnet", CHART, "--namespace", NAMESPACE, "--values", file)
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
