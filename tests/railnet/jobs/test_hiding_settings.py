"""Settings that hide the VFs of a pod are named, and settings that leave them in use are not."""

from typing import Any

import pytest

from railnet.jobs.hiding_settings import hiding, is_other_rdma
from railnet.objects.pod import parse

RAILS = ("rdma/ib_vf",)


def hidden(
    env: dict[str, str] | None = None,
    asks: str = "",
    annotations: dict[str, str] | None = None,
    net1: bool = True,
    **keys: Any,
) -> list[str]:
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    limits = {"rdma/ib_vf": "1", **({asks: "1"} if asks else {})}
    container = {"name": "main", "env": variables, "resources": {"limits": limits}, **keys}
    pod = parse({"metadata": {"name": "p", "annotations": annotations or {}}, "spec": {"containers": [container]}})
    return list(hiding(pod, pod.containers[0], RAILS, net1=net1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_IB_DISABLE", "0x1"),
        ("NCCL_NET", "Socket"),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_1"),
        ("NCCL_IB_HCA", "=mlx5_0:1"),
        ("NCCL_IB_HCA", "=mlx5"),
        ("NCCL_IB_HCA", "^mlx5"),
        ("NCCL_IB_HCA", "^mlx4_0,mlx5_:1"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
        ("NCCL_SOCKET_IFNAME", "=eth0"),
        ("NCCL_SOCKET_IFNAME", "=net"),
        ("NCCL_SOCKET_IFNAME", "^lo,net"),
        ("UCX_NET_DEVICES", "mlx5_0:1"),
        ("UCX_NET_DEVICES", "eth0"),
        ("UCX_TLS", "tcp,self,sm"),
        ("UCX_TLS", "^ib"),
        ("UCX_TLS", "^rc,ud,dc"),
        ("GLOO_SOCKET_IFNAME", "eth0"),
        ("TP_SOCKET_IFNAME", "eth0"),
        ("HOROVOD_GLOO_IFACE", "eth0"),
        ("DMLC_INTERFACE", "eth0"),
        ("OMPI_MCA_btl_tcp_if_include", "eth0"),
        ("OMPI_MCA_btl_tcp_if_exclude", "lo,net1"),
    ],
)
def test_variable_that_hides_the_vfs_is_named_with_its_value(name: str, value: str) -> None:
    (clause,) = hidden({name: value})

    assert clause.startswith(f"{name} is {value}: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_IB_DISABLE", "0x0"),
        ("NCCL_IB_DISABLE", "true"),
        ("NCCL_NET", "IB"),
        ("NCCL_IB_HCA", "mlx5"),
        ("NCCL_IB_HCA", "mlx5_"),
        ("NCCL_IB_HCA", "^mlx5_0"),
        ("NCCL_IB_HCA", "^=mlx5_0,mlx5_1"),
        ("NCCL_IB_HCA", "^=mlx5"),
        ("NCCL_IB_HCA", "^mlx4"),
        ("NCCL_IB_HCA", "^"),
        ("NCCL_IB_HCA", "="),
        ("NCCL_IB_HCA", ""),
        ("NCCL_SOCKET_IFNAME", "=net1"),
        ("NCCL_SOCKET_IFNAME", "net"),
        ("NCCL_SOCKET_IFNAME", "^docker0,lo"),
        ("NCCL_SOCKET_IFNAME", "^=net"),
        ("UCX_NET_DEVICES", "all"),
        ("UCX_TLS", "rc,self,sm"),
        ("UCX_TLS", "^tcp"),
        ("UCX_TLS", "^rc"),
        ("GLOO_SOCKET_IFNAME", "net1"),
        ("OMPI_MCA_btl_tcp_if_include", "eth0,net1"),
        ("OMPI_MCA_btl_tcp_if_include", "10.56.0.0/16"),
        ("OMPI_MCA_btl_tcp_if_exclude", "lo,docker0"),
    ],
)
def test_variable_that_leaves_the_vfs_in_use_is_not_named(name: str, value: str) -> None:
    assert hidden({name: value}) == []


@pytest.mark.parametrize(
    "command",
    [
        ["mpirun", "-x", "NCCL_IB_DISABLE=1", "python", "train.py"],
        ["sh", "-c", "export NCCL_IB_DISABLE='1'; exec python train.py"],
        ["env", "NCCL_IB_DISABLE=1", "python", "train.py"],
    ],
)
def test_variable_that_the_command_assigns_is_named(command: list[str]) -> None:
    assert hidden(command=command) == ["NCCL_IB_DISABLE is 1: NCCL uses no VF"]


@pytest.mark.parametrize(
    "script",
    [
        "# NCCL_IB_DISABLE=1\nexec python train.py",
        "exec python train.py  # with NCCL_IB_DISABLE=1 it was slow",
        "export GLOO_SOCKET_IFNAME=net1&& exec python train.py",
        "(export GLOO_SOCKET_IFNAME=net1) | tee log",
        'export NCCL_IB_HCA="^mlx4_0 "; exec python train.py',
    ],
)
def test_comment_and_signs_of_the_shell_are_no_value(script: str) -> None:
    assert hidden(command=["sh", "-c", script]) == []


def test_variable_that_the_command_assigns_anew_counts() -> None:
    """As for a pod with Railnet's variables, which `railnet doctor` looks at."""
    command = ["sh", "-c", "export GLOO_SOCKET_IFNAME=eth0 NCCL_IB_DISABLE=0; exec python train.py"]

    assert hidden({"GLOO_SOCKET_IFNAME": "net1", "NCCL_IB_DISABLE": "1"}, command=command) == [
        "GLOO_SOCKET_IFNAME is eth0: it does not use net1"
    ]


@pytest.mark.parametrize("option", ["-mca", "--mca", "-gmca", "--omca"])
def test_list_of_interfaces_among_the_arguments_of_mpirun_is_named(option: str) -> None:
    arguments = ["-np", "2", option, "btl_tcp_if_include", "eth0", "python", "train.py"]

    assert hidden(command=["mpirun"], args=arguments) == [
        "OMPI_MCA_btl_tcp_if_include is eth0: Open MPI's TCP does not use net1"
    ]


def test_list_of_horovods_examples_hides_nothing() -> None:
    assert hidden(command=["mpirun"], args=["-mca", "btl_tcp_if_exclude", "lo,docker0", "-x", "PATH"]) == []


def test_network_of_multus_is_named() -> None:
    annotations = {"k8s.v1.cni.cncf.io/networks": "ib-net"}

    assert hidden(annotations=annotations) == [
        "k8s.v1.cni.cncf.io/networks: Multus names its interfaces net1, net2, too"
    ]


def test_rdma_device_of_another_plugin_is_named() -> None:
    (clause,) = hidden(asks="rdma/hca_shared_devices_a")

    assert "rdma/hca_shared_devices_a" in clause


@pytest.mark.parametrize("name", ["rdma/hca", "nvidia.com/hostdev", "mellanox.com/cx7", "openshift.io/sriov_ib"])
def test_resource_that_stands_for_rdma_devices_is_known(name: str) -> None:
    assert is_other_rdma(name)


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "cpu", "memory", "example.com/fpga"])
def test_resource_that_does_not_stand_for_rdma_devices_is_none(name: str) -> None:
    assert not is_other_rdma(name)


def test_pod_without_net1_is_told_of_no_interface() -> None:
    bonded = dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include"), "bond0")

    assert hidden(bonded, annotations={"k8s.v1.cni.cncf.io/networks": "storage"}, net1=False) == []
    assert hidden({"NCCL_IB_DISABLE": "1"}, net1=False) == ["NCCL_IB_DISABLE is 1: NCCL uses no VF"]


@pytest.mark.parametrize(
    "word",
    [
        "NCCL_SOCKET_IFNAME=$(ip -o route)",
        "NCCL_IB_DISABLE=$NCCL_IB_DISABLE",
        "UCX_NET_DEVICES=${UCX_NET_DEVICES}",
        "-x NCCL_NET=$(NET)",
    ],
)
def test_value_that_is_expanded_later_hides_nothing(word: str) -> None:
    assert hidden(command=["sh", "-c", f"mpirun {word} train"]) == []
