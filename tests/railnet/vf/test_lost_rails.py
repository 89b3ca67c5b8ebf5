"""A rail is lost when its VF is not where its record says, and no request works on the sandbox."""

from dataclasses import replace

import pytest

from railnet.vf.inventory import Inventory, VirtualFunction
from railnet.vf.lost_rails import lost_rails
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Stage
from tests.deviceplugin.builders import two_rails
from tests.railnet.vf.builders import a_record, an_attachment

NODE = two_rails()
ON_NODE = NODE.pfs[0].vfs[0]
IN_POD = replace(ON_NODE, netdev=None)


def shown(vf: VirtualFunction) -> Inventory:
    return NODE.with_vfs({vf.address: vf})


def why(inventory: Inventory, stage: Stage = "attached", vf: PciAddress = ON_NODE.address) -> str:
    record = a_record(an_attachment(vf=vf), stage=stage)
    return "; ".join(lost_rails(inventory, [record]).values())


def test_rail_in_its_pod_is_not_lost() -> None:
    assert why(shown(IN_POD)) == ""


def test_rail_whose_interface_is_on_the_node_is_lost() -> None:
    assert ON_NODE.netdev is not None
    assert why(NODE).startswith(f"is on the node, as {ON_NODE.netdev.name}, and not in the pod")


def test_rail_whose_vf_is_gone_is_lost() -> None:
    assert why(NODE, vf=PciAddress.parse("0000:7f:00.1")).startswith("is not on the node any more")


def test_rail_whose_vf_has_no_driver_is_lost() -> None:
    assert why(shown(replace(IN_POD, driver=None))) == "has no driver, and so no interface in the pod"


def test_rail_whose_vf_another_program_bound_to_its_driver_is_lost() -> None:
    expected = "is bound to the driver vfio-pci in place of mlx5_core, and so has no interface in the pod"
    assert why(shown(replace(IN_POD, driver="vfio-pci", rdma=None))) == expected


def test_rail_whose_devices_only_its_pod_sees_is_not_lost() -> None:
    assert why(shown(replace(IN_POD, rdma=None))) == ""


@pytest.mark.parametrize("stage", ["planned", "detaching"])
def test_rail_of_a_sandbox_that_a_request_works_on_is_not_lost(stage: Stage) -> None:
    assert why(NODE, stage) == ""


def test_rail_whose_vf_cannot_be_read_is_not_lost() -> None:
    assert why(shown(replace(ON_NODE, fault="its files do not answer"))) == ""
