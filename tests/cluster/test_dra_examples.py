"""The examples of docs/dra on a real Kubernetes; one-leaf.yaml is tried by tests/control_plane, since simulated ports have no leaf switch."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.cluster.claims import claim, claim_of, devices, pod_with_claim, request
from tests.cluster.dra_examples import documents
from tests.cluster.dra_node import ALL, allocated, names_of, vfs
from tests.cluster.example_gpus import GPUS, example_gpus
from tests.cluster.ground import NODE
from tests.cluster.node import ClusterNode

ROOT = "resource.kubernetes.io/pcieRoot"


def run(dra: ClusterNode, example: str) -> str:
    """Apply an example, and wait until its pod, which has the same name, runs."""
    dra.create(*documents(example))
    dra.wait_until_ready(example)
    return example


def attribute(found: Iterable[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return the value of an attribute by device, of the devices that have it."""
    values = {device["name"]: device.get("attributes", {}).get(name) for device in found}
    return {device: next(iter(value.values())) for device, value in values.items() if value}


def test_one_vf_by_the_plain_line(dra: ClusterNode) -> None:
    run(dra, "one-vf")

    assert set(dra.addresses("one-vf")) == {"eth0", "net1"}
    assert allocated("one-vf") == names_of(vfs(dra, "one-vf"))


def test_two_vfs_are_on_two_rails(dra: ClusterNode) -> None:
    run(dra, "two-rails")
    rails = attribute(devices(NODE), "rail")

    assert set(dra.addresses("two-rails")) == {"eth0", "net1", "net2"}
    assert sorted(rails[device] for device in allocated("two-rails")) == [0, 1]


def test_eight_pairs_of_gpu_and_vf_are_each_below_one_pcie_root(dra: ClusterNode) -> None:
    with example_gpus(dra.kubectl):
        run(dra, "eight-pairs")
        (slice_of_gpus,) = (one for one in documents("example-gpus") if one["kind"] == "ResourceSlice")
        roots = {
            **attribute(devices(NODE), ROOT),
            **attribute(slice_of_gpus["spec"]["devices"], ROOT),
        }
        results = claim_of("eight-pairs")["status"]["allocation"]["devices"]["results"]
        by_request = {result["request"]: result["device"] for result in results}

        assert len(set(by_request.values())) == 2 * GPUS
        for number in range(GPUS):
            assert roots[by_request[f"gpu-{number}"]] == roots[by_request[f"nic-{number}"]]
        assert len(vfs(dra, "eight-pairs")) == GPUS == ALL
        assert set(dra.addresses("eight-pairs")) == {"eth0", *(f"net{number}" for number in range(1, GPUS + 1))}
        assert dra.forget_pods() == []


def test_pair_of_which_one_half_is_gone_is_not_given(dra: ClusterNode) -> None:
    """All VFs below the first root are taken, so four GPUs there have no VF beside them."""
    with example_gpus(dra.kubectl):
        below_first = [name for name, root in attribute(devices(NODE), ROOT).items() if root == "pci0000:00"]
        first_rail = request("vfs", len(below_first), selector='device.attributes["rdma.railnet.io"].rail == 0')
        dra.kubectl.apply(claim("taken", [first_rail]), pod_with_claim("taken", claim_name="taken"))
        dra.wait_until_ready("taken")
        dra.create(*documents("eight-pairs"))
        dra.wait_for_event("eight-pairs", "cannot allocate all claims")
        dra.delete("taken")
        dra.wait_until_ready("eight-pairs")
        assert dra.forget_pods() == []
