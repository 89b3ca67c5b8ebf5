"""The environment that makes frameworks use net1: one table, the same for every operator.

Rendezvous (MASTER_ADDR and its like) stays on eth0: it is a name and a few bytes, and torchrun finds its own host by it
(pytorch#73656). What depends on the device (NCCL_IB_HCA, UCX_NET_DEVICES) the device plugin gives with it.
"""

from dataclasses import dataclass

from training.operators import Part


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable and its value; `forwarded`: mpirun reads it where it is started and hands it to all ranks."""

    name: str
    value: str
    forwarded: bool = False


VARIABLES = (
    # "=": exactly this interface; NCCL takes a prefix otherwise, and so net1 for net10, too
    Variable("NCCL_SOCKET_IFNAME", "=net1"),
    Variable("GLOO_SOCKET_IFNAME", "net1"),
    Variable("TP_SOCKET_IFNAME", "net1"),
    Variable("HOROVOD_GLOO_IFACE", "net1"),
    Variable("DMLC_INTERFACE", "net1"),
    Variable("OMPI_MCA_btl_tcp_if_include", "net1", forwarded=True),
    # mpirun and its daemons find each other by the pods' names, which are eth0's
    Variable("OMPI_MCA_oob_tcp_if_include", "eth0", forwarded=True),
)


def wanted(part: Part) -> tuple[Variable, ...]:
    """Return the variables for a container with a rail, or those that a launcher without one passes on to ranks that have."""
    return tuple(variable for variable in VARIABLES if part is not Part.LAUNCHES or variable.forwarded)
