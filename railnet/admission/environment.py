"""The environment that makes frameworks use net1: one table, the same for every operator.

Rendezvous (MASTER_ADDR and similar variables) stays on eth0: it needs few bytes, and torchrun recognises its own host by that name
(pytorch#73656). Variables that depend on the device (NCCL_IB_HCA, UCX_NET_DEVICES) come from the device plugin (`deviceplugin.allocation`).
"""

from dataclasses import dataclass

from railnet.jobs.operators import Part


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable; `forwarded` means that mpirun reads it in the launcher and passes it to all ranks."""

    name: str
    value: str
    forwarded: bool = False


VARIABLES = (
    # "=" means exactly this interface; without it NCCL takes the value as a prefix, and net1 would also match net10
    Variable("NCCL_SOCKET_IFNAME", "=net1"),
    Variable("GLOO_SOCKET_IFNAME", "net1"),
    Variable("TP_SOCKET_IFNAME", "net1"),
    Variable("HOROVOD_GLOO_IFACE", "net1"),
    Variable("DMLC_INTERFACE", "net1"),
    # Weights of Open MPI's TCP, which takes the interface of the lowest latency (100 by default), and divides other transfers by bandwidth
    # in Mbit/s. A list (btl_tcp_if_include) would end each job that has the other list, even in a file of its image (docs/decisions/0079).
    Variable("OMPI_MCA_btl_tcp_latency_net1", "1", forwarded=True),
    Variable("OMPI_MCA_btl_tcp_bandwidth_net1", "1000000000", forwarded=True),
)


# The node names the VF alone in these variables. A pod that could use all HCAs of its host before goes on to use all: an empty value is no
# list for NCCL, and `all` is what UCX does without the variable.
EVERY_HCA = (Variable("NCCL_IB_HCA", ""), Variable("UCX_NET_DEVICES", "all"))


def wanted(part: Part) -> tuple[Variable, ...]:
    """Return the variables for a container with a rail; for a launcher without a rail, only those that it forwards to its ranks."""
    return tuple(variable for variable in VARIABLES if part is not Part.LAUNCHES or variable.forwarded)
