"""A pod's own settings that keep its programs from its VFs, though it has them: they look like a slow network, not like a setting. Pure.

A setting is a variable of the training container, or one that its command assigns, such as `mpirun -x NCCL_IB_DISABLE=1`. What an image
or a ConfigMap sets cannot be seen. Settings that the node makes by itself are not here (`deviceplugin.allocation`).
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from railnet.jobs.gpus import is_gpu
from railnet.objects.pod import Container, Pod

_INTERFACE = "net1"
_MULTUS = ("k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network")
_RDMA_DOMAINS = ("rdma", "mellanox.com")
_NVIDIA = "nvidia.com"  # its RDMA plugin and its SR-IOV plugin have resources here, beside its GPUs
_RDMA_NAME = re.compile(r"rdma|hca|sriov|mlnx|roce|infiniband", re.IGNORECASE)
_VERBS = (
    "all",
    "ib",
    "rc",
    "ud",
    "dc",
    "rc_x",
    "ud_x",
    "dc_x",
    "rc_v",
    "rc_verbs",
    "rc_mlx5",
    "ud_v",
    "ud_verbs",
    "ud_mlx5",
    "dc_mlx5",
)
_FAMILIES = {"rc", "ud", "dc"}  # each stands for all transports that begin with it, and ib for all of these
_EACH_MCA = re.compile(r"--?(?:g?mca|omca|prtemca)\s+(\w+)\s+(\S+)")
# A value that no quotes enclose ends before a sign of the shell.
_EACH_ASSIGNMENT = re.compile(r"""(?<![\w.])([A-Z][A-Za-z0-9_]+)=("[^"]*"|'[^']*'|[^\s;&|()<>]+)""")
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#.*")  # in the text of a script
# Of the kernel, or of the PCI address: mlx5_0, mlx5_bond_0, ibp65s0, rocep65s0f1v2.
_NUMBERED = re.compile(r"[_sfv]\d+$")
_BEGINNINGS = ("mlx5_", "ibp", "rocep")  # of the names of VFs
_QUOTES = "\"';"
_NUMBER = re.compile(r"\s*[-+]?(?:0[xX]([0-9a-fA-F]+)|(\d+))")


class _Setting(NamedTuple):
    """A variable, whether a value of it hides the VFs, the effect, a clause, and whether that is about the interface net1."""

    name: str
    hides: Callable[[str], bool]
    effect: str
    names_net1: bool = False


def hiding(pod: Pod, container: Container, rails: Collection[str], *, net1: bool) -> Iterator[str]:
    """Yield what hides the VFs from the training container of a pod with rails, in clauses.

    A value that a shell or kubelet expands is not known here, so it hides nothing.

    Args:
        pod: the pod.
        container: its training container.
        rails: the resources of rails.
        net1: whether the pod has an interface net1 with an address.
    """
    yield from hiding_variables(container, net1=net1)
    if net1:
        yield from (
            f"{key}: Multus names its interfaces net1, net2, too" for key in _MULTUS if pod.annotations.get(key)
        )
    for name in container.resources:
        if name not in rails and is_other_rdma(name):
            yield f"the container also asks for {name}: its programs may use that device in place of the VF"


def hiding_variables(container: Container, *, net1: bool) -> Iterator[str]:
    """Yield the variables alone: those of a launcher without a VF reach the ranks that it starts, which have one."""
    settings = {**container.env, **_assigned(container.words)}  # what a command assigns, its programs see
    for setting in _SETTINGS:
        value = settings.get(setting.name)
        if value and "$" not in value and (net1 or not setting.names_net1) and setting.hides(value):
            yield f"{setting.name} is {value:.60}: {setting.effect}"


def is_other_rdma(resource: str) -> bool:
    """Return whether an extended resource that is of no rail stands for RDMA devices."""
    domain, _, name = resource.partition("/")
    if not name or is_gpu(resource):
        return False
    return domain in (*_RDMA_DOMAINS, _NVIDIA) or bool(_RDMA_NAME.search(name))


def _assigned(words: Collection[str]) -> Mapping[str, str]:
    """Return the variables that a command sets: `NAME=VALUE`, and parameters of Open MPI as the variables that they stand for."""
    command = " ".join(_COMMENT.sub("", word) for word in words)
    variables = {f"OMPI_MCA_{name}": value for name, value in _EACH_MCA.findall(command)}
    assigned = dict(_EACH_ASSIGNMENT.findall(command))
    return {name: value.strip(_QUOTES) for name, value in {**variables, **assigned}.items()}


def _is_on(value: str) -> bool:
    """Return whether NCCL reads a number other than zero, as strtoll does (NVIDIA/nccl, src/misc/param.cc, ncclLoadParam): `true` is zero."""
    number = _NUMBER.match(value)
    return number is not None and set(number[1] or number[2]) != {"0"}


def _is_sockets(value: str) -> bool:
    return value.strip().lower() == "socket"


def _leaves_out_hcas(value: str) -> bool:
    """Return whether a list of NCCL leaves the VFs out, with its signs ^ (all but) and = (whole names), which come in this order.

    The VF has a name only when the pod has it. So a list of whole names leaves the VF out, and a prefix without a number fits each VF.
    """
    excludes, listed = value.startswith("^"), value.removeprefix("^")
    exact = listed.startswith("=")
    names = [name.partition(":")[0] for name in listed.removeprefix("=").split(",")]
    names = [name for name in names if name]
    if excludes:
        return not exact and any(beginning.startswith(name) for name in names for beginning in _BEGINNINGS)
    return bool(names) and (exact or all(map(_NUMBERED.search, names)))


def _leaves_out_in_nccl(value: str) -> bool:
    """Return whether a list of NCCL, with its signs ^ (all but) and = (whole names), leaves net1 out."""
    excludes, names = value.startswith("^"), value.removeprefix("^")
    exact = names.startswith("=")
    listed = [name.partition(":")[0] for name in names.removeprefix("=").split(",")]
    fits = any(name == _INTERFACE if exact else _INTERFACE.startswith(name) for name in listed if name)
    return fits is excludes


def _leaves_out(value: str) -> bool:
    return _INTERFACE not in value.split(",")


def _leaves_out_in_open_mpi(value: str) -> bool:
    """Return whether a list of Open MPI leaves net1 out. A list may have subnets, and net1's subnet is not known here."""
    return "/" not in value and _leaves_out(value)


def _has(value: str) -> bool:
    return not _leaves_out(value)


def _names_devices_of_ucx(value: str) -> bool:
    names = {name.partition(":")[0] for name in value.split(",")}
    return "all" not in names and _INTERFACE not in names and not value.startswith("^")


def _is_without_verbs(value: str) -> bool:
    """Return whether a list of UCX's transports, or with ^ the list of those that it leaves out, leaves no verbs (ucp/core/ucp_context.c)."""
    names = set(value.removeprefix("^").split(","))
    return "ib" in names or names >= _FAMILIES if value.startswith("^") else names.isdisjoint(_VERBS)


_NOT_NET1 = "it does not use net1"
_SETTINGS = (
    _Setting("NCCL_IB_DISABLE", _is_on, "NCCL uses no VF"),
    _Setting("NCCL_NET", _is_sockets, "NCCL uses no VF"),
    _Setting(
        "NCCL_IB_HCA", _leaves_out_hcas, "it takes the place of the VF's own name, which the node sets: remove it"
    ),
    _Setting(
        "NCCL_SOCKET_IFNAME",
        _leaves_out_in_nccl,
        "NCCL meets on other interfaces than net1, and so does its TCP",
        names_net1=True,
    ),
    _Setting(
        "UCX_NET_DEVICES",
        _names_devices_of_ucx,
        "it takes the place of the VF's own name, which the node sets: remove it",
    ),
    _Setting("UCX_TLS", _is_without_verbs, "UCX uses no VF"),
    _Setting("GLOO_SOCKET_IFNAME", _leaves_out, _NOT_NET1, names_net1=True),
    _Setting("TP_SOCKET_IFNAME", _leaves_out, _NOT_NET1, names_net1=True),
    _Setting("HOROVOD_GLOO_IFACE", _leaves_out, _NOT_NET1, names_net1=True),
    _Setting("DMLC_INTERFACE", _leaves_out, _NOT_NET1, names_net1=True),
    _Setting(
        "OMPI_MCA_btl_tcp_if_include", _leaves_out_in_open_mpi, "Open MPI's TCP does not use net1", names_net1=True
    ),
    _Setting("OMPI_MCA_btl_tcp_if_exclude", _has, "Open MPI's TCP does not use net1", names_net1=True),
)
