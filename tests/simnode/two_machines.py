"""Two machines with two rails each for a `Cluster`, and a function that kills a node."""

import os
import signal
from ipaddress import IPv4Interface

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.cluster import Machine
from simnode.hardware.pf_properties import SimulatedPf


def machine(name, number):
    first, second = Guid(0xB8599F0300000000 + number), Guid(0xB8599F0300010000 + number)
    pfs = (SimulatedPf(guid=first), SimulatedPf(PciAddress(0, 0x0C, 0, 0), second, "ibs6"))
    return Machine(name, IPv4Interface(f"172.18.0.{number}/24"), IPv4Interface(f"10.244.{number}.1/24"), pfs)


MACHINES = machine("node-a", 3), machine("node-b", 4)


def die(node):
    os.kill(os.getpid(), signal.SIGKILL)
