"""The device nodes and environment that a container gets with its VFs."""

import json
from dataclasses import replace

import pytest

from deviceplugin.allocation import allocate, environment_name
from deviceplugin.devices import OfferedVf, Offers
from deviceplugin.pool_selection import DEFAULT, Pool, Selector
from railnet.errors import NotOurs, NotReady, Unusable
from railnet.vf.inventory import Port, RdmaDevice
from railnet.vf.vf_table import VfTable
from tests.deviceplugin.builders import a_vf, an_rdma_device, two_rails

POOL = DEFAULT[0]
OFFERED = Offers(DEFAULT, POOL).now(VfTable(two_rails()))
BOTH = ["0000:83:00.1", "0000:03:00.1"]  # kubelet sends ids in any order


def test_allocate_returns_the_device_nodes_in_rail_order_and_rdma_cm_once() -> None:
    allocation = allocate(POOL, OFFERED, BOTH, {})

    assert allocation.device_nodes == (
        "/dev/infiniband/uverbs4",
        "/dev/infiniband/uverbs2",
        "/dev/infiniband/rdma_cm",
    )


def test_allocate_returns_management_devices_when_the_pool_has_them() -> None:
    allocation = allocate(replace(POOL, management=True), OFFERED, ["0000:03:00.1"], {})

    assert allocation.device_nodes == (
        "/dev/infiniband/uverbs4",
        "/dev/infiniband/umad4",
        "/dev/infiniband/issm4",
        "/dev/infiniband/rdma_cm",
    )


def test_allocate_omits_a_management_device_that_the_kernel_does_not_have() -> None:
    offered = [OfferedVf(a_vf(rdma=an_rdma_device(1, issm=None)), 0, None)]

    allocation = allocate(replace(POOL, management=True), offered, ["0000:03:00.1"], {})

    assert "/dev/infiniband/issm1" not in allocation.device_nodes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PCIDEVICE_RDMA_IB_VF", "0000:03:00.1,0000:83:00.1"),
        ("NCCL_IB_HCA", "=mlx5_4:1,mlx5_2:1"),
        ("UCX_NET_DEVICES", "mlx5_4:1,mlx5_2:1"),
    ],
)
def test_allocate_sets_the_environment_in_rail_order(name: str, value: str) -> None:
    assert allocate(POOL, OFFERED, BOTH, {}).envs[name] == value


def test_allocate_names_the_rails_for_nccl_and_not_for_ucx_if_the_pool_has_them() -> None:
    envs = allocate(replace(POOL, nccl_rails=True), OFFERED, BOTH, {}).envs

    assert envs["NCCL_IB_HCA"] == "=mlx5_4:1:0,mlx5_2:1:1"
    assert envs["UCX_NET_DEVICES"] == "mlx5_4:1,mlx5_2:1"


PLANES = Port("4: ACTIVE", "5: LinkUp", "InfiniBand", 3)


@pytest.mark.parametrize(
    ("port", "data_ports", "numbers", "named"),
    [
        (replace(PLANES), (3,), (3,), "mlx5_1:3"),
        (replace(PLANES, state="1: DOWN"), (3,), (3,), "mlx5_1:3"),
        (replace(PLANES), (3, 6), (1, 2, 3, 4, 5, 6), "mlx5_1:3,mlx5_1:6"),
        (replace(PLANES, state="1: DOWN", number=1), (1,), (1, 2, 3), "mlx5_1:1,mlx5_1:2,mlx5_1:3"),
        (replace(PLANES, state="1: DOWN", number=1), (1,), (1, 2), "mlx5_1:1"),
    ],
    ids=[
        "port 3 alone",
        "port 3 alone, before its ADD",
        "planes",
        "planes, before its ADD",
        "two networks, before its ADD",
    ],
)
def test_allocate_names_the_data_ports(
    port: Port, data_ports: tuple[int, ...], numbers: tuple[int, ...], named: str
) -> None:
    rdma = an_rdma_device(1, port, data_ports=data_ports, port_numbers=numbers)

    envs = allocate(POOL, [OfferedVf(a_vf(rdma=rdma), 0, None)], ["0000:03:00.1"], {}).envs

    assert (envs["NCCL_IB_HCA"], envs["UCX_NET_DEVICES"]) == (f"={named}", named)


def test_allocate_names_no_rail_that_is_not_certain() -> None:
    offered = [OfferedVf(a_vf(rdma=an_rdma_device(1)), None, None)]

    envs = allocate(replace(POOL, nccl_rails=True), offered, ["0000:03:00.1"], {}).envs

    assert envs["NCCL_IB_HCA"] == "=mlx5_1:1"


def test_allocate_leaves_the_gid_to_nccl() -> None:
    assert "NCCL_IB_GID_INDEX" not in allocate(POOL, OFFERED, BOTH, {}).envs


def test_allocate_sets_the_details_in_the_form_of_sriov_network_device_plugin() -> None:
    envs = allocate(POOL, OFFERED, ["0000:83:00.2"], {}).envs

    assert json.loads(envs["PCIDEVICE_RDMA_IB_VF_INFO"]) == {
        "0000:83:00.2": {
            "generic": {"deviceID": "0000:83:00.2"},
            "rdma": {
                "uverbs": "/dev/infiniband/uverbs1",
                "rdma_cm": "/dev/infiniband/rdma_cm",
                "rdma_dev": "mlx5_1",
            },
        }
    }


def test_allocate_sets_addresses_only_when_the_pool_needs_no_rdma_device() -> None:
    pool = Pool("example.com/eth-vf", Selector(), rdma=False)

    allocation = allocate(pool, [OfferedVf(a_vf(rdma=None), 0, None)], ["0000:03:00.1"], {})

    assert allocation.device_nodes == ()
    assert allocation.envs == {
        "PCIDEVICE_EXAMPLE_COM_ETH_VF": "0000:03:00.1",
        "PCIDEVICE_EXAMPLE_COM_ETH_VF_INFO": '{"0000:03:00.1":{"generic":{"deviceID":"0000:03:00.1"}}}',
    }


def test_allocate_refuses_an_unknown_device_by_its_id() -> None:
    with pytest.raises(NotOurs, match=r"rdma/ib_vf has no device 0000:99:00\.1 on this node"):
        allocate(POOL, OFFERED, ["0000:03:00.1", "0000:99:00.1"], {})


def test_allocate_names_three_unknown_devices_and_the_number_of_the_others() -> None:
    ids = [f"{number:04}" + "x" * 1000 for number in range(10_000)]

    with pytest.raises(NotOurs, match=r"has no device 0000x{60}, 0001x{60}, 0002x{60} and 9997 more on this node"):
        allocate(POOL, OFFERED, ids, {})


def test_allocate_refuses_a_device_that_cannot_serve_until_an_operator_acts() -> None:
    offered = [OfferedVf(a_vf(), 0, "no driver", lasting="no driver")]

    with pytest.raises(Unusable, match=r"device 0000:03:00\.1 of rdma/ib_vf is unhealthy: no driver"):
        allocate(POOL, offered, ["0000:03:00.1"], {})


def test_allocate_gives_a_device_that_has_become_unhealthy_for_a_while() -> None:
    offered = [OfferedVf(a_vf(netdev=None), 0, "no network interface on the host")]

    allocation = allocate(POOL, offered, ["0000:03:00.1"], {})

    assert allocation.device_nodes == ("/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm")


@pytest.mark.parametrize("shown", [None, an_rdma_device(9, uverbs=None)])
def test_allocate_gives_the_last_rdma_device_of_a_vf_that_shows_none_now(shown: RdmaDevice | None) -> None:
    vf = a_vf(netdev=None, rdma=shown)

    allocation = allocate(
        POOL, [OfferedVf(vf, 0, "no RDMA device")], [str(vf.address)], {vf.address: an_rdma_device(1)}
    )

    assert allocation.device_nodes == ("/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm")
    assert allocation.envs["NCCL_IB_HCA"] == "=mlx5_1:1"


def test_allocate_refuses_a_vf_whose_rdma_device_was_never_seen() -> None:
    with pytest.raises(NotReady, match=r"device 0000:03:00\.1 of rdma/ib_vf has had no RDMA device"):
        allocate(POOL, [OfferedVf(a_vf(netdev=None, rdma=None), 0, None)], ["0000:03:00.1"], {})


@pytest.mark.parametrize(
    ("resource", "name"),
    [("rdma/ib_vf", "PCIDEVICE_RDMA_IB_VF"), ("a.b-c/d-e.f", "PCIDEVICE_A_B_C_D_E_F")],
)
def test_environment_name_has_only_characters_that_a_shell_permits(resource: str, name: str) -> None:
    assert environment_name(resource) == name
