"""The parts of the daemon that attach, recover and reclaim, composed: each gets what it needs in its constructor.

The parts that kubelet and the runtime talk to are composed in `railnet.daemon.composition`.
"""

from dataclasses import dataclass
from pathlib import Path

from cni.attachment.attachments import Attachments
from cni.attachment.host_netdev_lookup import NetdevLookup
from cni.attachment.ipam_release_by_daemon import IpamRelease
from cni.attachment.journal import Journal
from cni.attachment.local_ipam import LocalIpam
from cni.attachment.netdev_return import NodeNetdevs
from cni.attachment.vf_reassignment import Claims
from cni.host import lock
from cni.host_delegates import HostDelegates
from cni.primary_gc.collector import PrimaryGc
from cni.rail_observers import TookBack
from cni.recovery.contested_vfs import ContestedVfs
from cni.recovery.missing_netdevs import OrphanVfs
from cni.recovery.namespace_observation import SandboxNamespaces
from cni.recovery.record_repair import RecordRepair
from cni.recovery.sweep import Recovery
from cni.sandbox_locks import PerKey
from railnet.configuration import Configuration
from railnet.daemon.allocated_vfs import AllocatedVfs
from railnet.daemon.kubelet_folder import KubeletSearch
from railnet.daemon.rail_memory_file import RailKeeper
from railnet.dra.prepared_claim_files import PreparedClaims
from railnet.kernel.boot import boot_id
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.vf_table import VfTable

_RUN = Path(lock.RUN)


@dataclass(frozen=True, slots=True)
class NodeParts:
    """The parts of which a node has one each; `sandboxes` has the lock of each sandbox, by its key."""

    sysfs: Sysfs
    table: VfTable
    journal: Journal
    rails: RailKeeper
    sandboxes: PerKey
    attachments: Attachments
    contested: ContestedVfs
    repair: RecordRepair
    recovery: Recovery
    primary_gc: PrimaryGc
    claims: PreparedClaims
    allocated: AllocatedVfs


def compose(
    configuration: Configuration, sysfs: Sysfs, table: VfTable, took_back: TookBack, kubelet: KubeletSearch
) -> NodeParts:
    """Read the journal and compose; nothing on the node is changed yet.

    Raises:
        OSError: the journal's folders cannot be made or read.
    """
    root, timeouts, boot = configuration.host.root, configuration.timeouts, boot_id()
    journal = Journal(_RUN / "journal", _RUN / "quarantine")
    prepared_claims = PreparedClaims(_RUN / "claims")
    allocated = AllocatedVfs(configuration, kubelet, lambda: prepared_claims.need_the_driver)
    sandboxes = PerKey()
    delegates = HostDelegates(root, timeouts.delegate)
    ipam_release = IpamRelease(journal, delegates)
    claims = Claims(table, timeouts.daemon)
    netdevs = NetdevLookup(table, sysfs)
    node_netdevs = NodeNetdevs(table, sysfs, netdevs, root)
    attachments = Attachments(
        table=table,
        journal=journal,
        networks=configuration.networks,
        claims=claims,
        netdevs=netdevs,
        node_netdevs=node_netdevs,
        local_ipam=LocalIpam(configuration.host.flannel, configuration.host.root),
        ipam_release=ipam_release,
        sysfs=sysfs,
        root=root,
        boot=boot,
    )
    repair = RecordRepair(
        table=table, journal=journal, claims=claims, node_netdevs=node_netdevs, sandboxes=sandboxes, boot=boot
    )
    orphan_vfs = OrphanVfs(
        table=table,
        journal=journal,
        claims=claims,
        node_netdevs=node_netdevs,
        repair=repair,
        pods=allocated.pods,
    )
    namespaces = SandboxNamespaces(root, boot, node_netdevs)
    recovery = Recovery(
        journal=journal,
        sandboxes=sandboxes,
        namespaces=namespaces,
        attachments=attachments,
        ipam_release=ipam_release,
        repair=repair,
        orphan_vfs=orphan_vfs,
        took_back=took_back,
    )
    primary_gc = PrimaryGc(
        root=root,
        cri_socket=configuration.host.cri,
        cni_path=str(configuration.host.cni_bin),
        # An ADD that is interrupted at its deadline is undone after it, by delegates with a time limit of their own.
        add_seconds=timeouts.add + timeouts.delegate,
        delegates=delegates,
        records=journal.records,
        took_back=took_back,
    )
    contested = ContestedVfs(journal, namespaces, node_netdevs)
    rails = RailKeeper(configuration, table, journal)
    return NodeParts(
        sysfs,
        table,
        journal,
        rails,
        sandboxes,
        attachments,
        contested,
        repair,
        recovery,
        primary_gc,
        prepared_claims,
        allocated,
    )
