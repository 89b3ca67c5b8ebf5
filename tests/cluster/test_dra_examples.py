"""The examples of docs/dra on a real Kubernetes; one-leaf.yaml is tried by tests/control_plane, since simulated ports have no leaf switch."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.cluster.claims import claim, claim_of, devices, pod_with_claim, request, template
from tests.cluster.dra_examples import documents
from tests.cluster.dra_node import ALL, allocated, names_of, vfs
from tests.cluster.example_gpus import DRIVER, GPUS, example_gpus
from tests.cluster.ground import NODE
from tests.cluster.node import VFS, ClusterNode

STANDARD = "resource.kubernetes.io"
ROOT = f"{STANDARD}/pcieRoot"


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


def test_pair_waits_until_a_vf_below_the_root_of_its_gpu_is_free(dra: ClusterNode) -> None:
    of_first_rail = 'device.attributes["rdma.railnet.io"].rail == 0'
    # The devices that the example driver itself publishes have no root.
    roots = f'device.attributes["{STANDARD}"]'
    below_first_root = f'"pcieRoot" in {roots} && {roots}.pcieRoot == "pci0000:00"'
    pair = template(
        "pair",
        [request("gpu", device_class=DRIVER, selector=below_first_root), request("nic")],
        constraints=[{"requests": ["gpu", "nic"], "matchAttribute": ROOT}],
    )
    with example_gpus(dra.kubectl):
        taken = claim("taken", [request("vfs", VFS, selector=of_first_rail)])
        dra.create(taken, pod_with_claim("taken", claim_name="taken"))
        dra.wait_until_ready("taken")
        dra.create(pair, pod_with_claim("pair", of_template="pair"))
        dra.wait_for_event("pair", "cannot allocate all claims")  # the VFs of the other root are free
        dra.delete("taken")
        dra.wait_until_ready("pair")

        assert attribute(devices(NODE), ROOT)[names_of(vfs(dra, "pair")).pop()] == "pci0000:00"
        assert dra.forget_pods() == []
