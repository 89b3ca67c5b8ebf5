"""A cluster of simulated nodes: an Ethernet connects their `eth0`, and one fabric for each rail connects their fabrics.

The caller decides what runs on the nodes.
"""

import contextlib
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar, cast

from simnode import node_network
from simnode.hardware.fabric import Fabric, Uplink, cable
from simnode.hardware.pf_properties import SimulatedPf
from simnode.linux import namespaces
from simnode.node import Node
from simnode.node_network import HostRoute
from simnode.preinstalled_files import FlannelLease
from simnode.remote_node import NodePlan, RemoteNode

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Machine:
    """One node of a cluster.

    Attributes:
        name: at most 15 characters; it is also the name of the node's port on the Ethernet.
        address: the node's address on the Ethernet.
        subnet: the subnet that flannel leased to the node, with the address of the node's bridge.
        pfs: one PF for each rail.
    """

    name: str
    address: IPv4Interface
    subnet: IPv4Interface
    pfs: tuple[SimulatedPf, ...]


class Cluster:
    """Several nodes inside `simnode exec`; a context manager that leaves nothing behind.

    Attributes:
        nodes: in the order of the machines.
        fabrics: the fabrics between the nodes, by rail; packets within one node do not pass here.
    """

    def __init__(self, plugins: Path, machines: Iterable[Machine], vfs: int = 8) -> None:
        self._plugins, self._machines, self._vfs = plugins, tuple(machines), vfs
        self.nodes: tuple[RemoteNode[Node], ...] = ()
        self.fabrics: tuple[Fabric, ...] = ()
        self._made = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if not namespaces.inside():
            raise RuntimeError(
                "this process is not in the namespaces of a simulated node, and a cluster makes links: "
                "start it by `python -m simnode exec -- COMMAND`"
            )
        with contextlib.ExitStack() as made:
            rails = max(len(machine.pfs) for machine in self._machines)
            self.fabrics = tuple(made.enter_context(Fabric()) for _ in range(rails))
            self.nodes = tuple(self._start(machine, made) for machine in self._machines)
            for node in self.nodes:
                node.wait()
            node_network.connect((node.name, node.pid) for node in self.nodes)
            made.callback(node_network.disconnect)
            self._configure()
            self._made = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._made.close()

    def everywhere(
        self, function: Callable[Concatenate[Node, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> list[_T]:
        """Call a function on all nodes at once and return the results in the order of the nodes; see `RemoteNode.call`."""
        for node in self.nodes:
            node.begin(function, *args, **kwargs)
        return [cast(_T, node.wait()) for node in self.nodes]

    def _start(self, machine: Machine, made: contextlib.ExitStack) -> RemoteNode[Node]:
        lease = FlannelLease(machine.subnet, node_network.MTU)  # host-gw does not encapsulate
        plan = NodePlan(self._plugins, machine.pfs, self._vfs, lease)
        with contextlib.ExitStack() as node_ends:  # the node has copies of its own
            ends = [node_ends.enter_context(self._cabled(fabric, made)) for fabric in self.fabrics[: len(machine.pfs)]]
            node: RemoteNode[Node] = RemoteNode(machine.name, plan, ends)
        made.callback(node.close)
        return node

    def _cabled(self, fabric: Fabric, made: contextlib.ExitStack) -> socket.socket:
        """Plug a cable into a fabric and return the cable's other end, which the caller closes."""
        fabric_end, node_end = cable()
        port = Uplink(fabric_end)
        made.callback(port.close)
        fabric.join(port)
        made.callback(fabric.leave, port)
        return node_end

    def _configure(self) -> None:
        for machine, node in zip(self._machines, self.nodes, strict=True):
            others = [other for other in self._machines if other is not machine]
            routes = [HostRoute(other.subnet.network, other.address.ip) for other in others]
            node.call(node_network.configure, machine.address, routes)
