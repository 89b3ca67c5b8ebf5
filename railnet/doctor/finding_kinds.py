"""The kinds of finding that `railnet doctor` has for a node, and with `--pod` and `--cluster`: for each kind its severity, its meaning and its remedy. Pure.

The name of a kind is also a heading of docs/doctor.md.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class FindingKind(NamedTuple):
    """One kind of finding. An `error` keeps pods from a rail now; a `warning` may; a `note` needs no action."""

    severity: Severity
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: the name of its kind, the device, process or file, and what was seen there."""

    name: str
    where: str
    seen: str

    @property
    def kind(self) -> FindingKind:
        """Return what all findings of this name have in common."""
        return KINDS[self.name]


OF_A_NODE = {
    "could-not-be-read": FindingKind(
        "warning",
        "Other checks of this device or file could not be made.",
        "As the message says.",
    ),
    "not-permitted": FindingKind(
        "warning",
        "The kernel refuses this to `railnet doctor`. Nothing is known of the file or device, and nothing need be wrong with it.",
        "Run it in the node's Railnet pod (kubectl -n railnet exec POD -- railnet doctor), or as root on the node, outside of a container. "
        "In a pod of your own it needs what the DaemonSet names: hostPID, SYS_PTRACE, and no AppArmor profile.",
    ),
    "not-a-node": FindingKind(
        "error",
        "This machine is no Kubernetes node, as far as `railnet doctor` can see. What Railnet needs of a node is not looked for.",
        "Run it in a node's Railnet pod (kubectl -n railnet exec POD -- railnet doctor). From elsewhere, `railnet doctor --cluster` and `--pod NAME` "
        "ask the API server.",
    ),
    "primary-not-available": FindingKind(
        "error",
        "The primary network cannot make a pod's network, so Railnet answers STATUS with an error. The runtime then says that the network is "
        "not ready, and the node is NotReady: no new pod starts there, with or without a rail.",
        "Mend the primary network: for flannel, see that its pod runs on this node and what its log says (it writes the file when the node has a "
        "podCIDR). Railnet needs no restart.",
    ),
    "slices-outdated": FindingKind(
        "error",
        "The node offers its VFs by DRA, and its ResourceSlices are missing, or older than the node's VFs: the scheduler goes by what they say.",
        "As the message says. It is tried again by itself. Without the right, or without the API, see docs/dra.md: the chart's `offer` must be `dra`, too.",
    ),
    "kubelet-elsewhere": FindingKind(
        "error",
        "The daemon looks for kubelet in another folder than the running kubelet has, so kubelet does not find it: the node offers no VF.",
        "Take `host.kubelet` out of node.yaml (the value `node.configuration.host` or `distribution`), or set it to kubelet's --root-dir.",
    ),
    "kubelet-folder-missing": FindingKind(
        "error",
        "A folder of kubelet's is not where Railnet looks for it. Without plugins_registry the node offers no VF; without device-plugins it is not "
        "known which pod has which VF.",
        "Start kubelet, which makes its folders. If it runs, set `host.kubelet` of node.yaml to its --root-dir.",
    ),
    "wrong-configuration": FindingKind(
        "error",
        "The daemon ends with this configuration. This report was made with the default configuration.",
        "Correct the file (the ConfigMap railnet-node); the message names the key.",
    ),
    "no-rail": FindingKind(
        "warning",
        "No pod can get a rail on this node. Pods that ask for no rail run as before.",
        "If the node has an InfiniBand card, switch SR-IOV on: in the BIOS, and in the card's firmware "
        "(mlxconfig -d DEVICE set SRIOV_EN=1 NUM_OF_VFS=N, then a cold boot).",
    ),
    "no-vfs": FindingKind(
        "warning",
        "This card gives no pod a rail, since it has no VFs.",
        "Name the PF under `provision` in node.yaml, or write a number to its file sriov_numvfs.",
    ),
    "pf-without-driver": FindingKind(
        "error",
        "No driver serves the card, so it has no port and can have no VFs.",
        "Load the driver (modprobe mlx5_core), then bind the PF: echo ADDRESS > /sys/bus/pci/drivers_probe. "
        "If it fails, dmesg says why.",
    ),
    "pf-without-rdma": FindingKind(
        "error",
        "The driver runs, but the PF has no RDMA device in the daemon's network namespace.",
        "Load the driver's RDMA module, such as modprobe mlx5_ib.",
    ),
    "port-down": FindingKind(
        "error",
        "The port has no link, so no VF of this card reaches the network.",
        "Look at the cable, at both its ends, and at the switch's port. `Polling` means that the port looks for a partner; "
        "`Disabled` means that it was switched off.",
    ),
    "no-subnet-manager": FindingKind(
        "error",
        "The cable has a link, but no subnet manager has made the port ACTIVE.",
        "Start a subnet manager on this fabric (OpenSM, UFM, or the switch's own), and see that it reaches this port. "
        "If one runs, its log names the port's GUID.",
    ),
    "port-without-lid": FindingKind(
        "error",
        "An ACTIVE InfiniBand port must have a LID; without one no packet can be addressed to it.",
        "Look at the subnet manager's log for this port's GUID; restart the subnet manager if it says nothing.",
    ),
    "vf-ports-down": FindingKind(
        "warning",
        "The card's own port is ACTIVE and the ports of these VFs are not. The subnet manager has no virtual ports (upstream "
        "OpenSM has none), does not know the VFs' GUIDs, or the VFs' link state is not `auto`. A pod with such a VF waits for "
        "its port, or has no traffic.",
        "Switch virtualization on in the subnet manager (NVIDIA's OpenSM: virt_enabled 2; UFM), and let it admit the VFs' GUIDs. "
        "See the VFs' link state with `ip link show` of the PF.",
    ),
    "guid-zero": FindingKind(
        "error",
        "A VF without a GUID gets no LID, and no pod gets the VF.",
        "Name the PF under `provision` in node.yaml: the daemon then derives GUIDs. Otherwise set node_guid and port_guid with "
        "`ip link set PF vf N`, then bind the VF's driver again.",
    ),
    "guid-twice": FindingKind(
        "error",
        "Two functions have the same GUID. The subnet manager serves one of them, or changes between both.",
        "Give each VF its own GUID with `ip link set PF vf N`, then bind its driver again; or let the daemon derive GUIDs by `provision`.",
    ),
    "no-partition": FindingKind(
        "warning",
        "The port is ACTIVE and is in no partition, so it may send to no other port.",
        "Add the VF's GUID to a partition of the subnet manager.",
    ),
    "limited-partition": FindingKind(
        "warning",
        "The port is only a limited member of its partitions: two limited members do not reach each other, so two pods with such "
        "VFs do not either.",
        "Make the VF's GUID a full member in the subnet manager's partition (OpenSM's partitions.conf: `=full`).",
    ),
    "roce-without-gid": FindingKind(
        "warning",
        "A pod has this VF, and the VF's port has no GID of RoCE v2. RDMA between this pod and others cannot be set up by addresses.",
        "Give the network an address range (`ipam` of the network in node.yaml). If the pod's rail has an address, switch RoCE on in the "
        "driver: `devlink dev param show pci/ADDRESS name enable_roce`.",
    ),
    "roce-link-local-only": FindingKind(
        "warning",
        "A pod has this VF, and the VF's only GIDs are link-local. A program that takes a GID of another index, or a peer in another "
        "subnet, does not reach the pod.",
        "Give the network an address range (`ipam` of the network in node.yaml), so that the rail's address makes a GID.",
    ),
    "roce-small-mtu": FindingKind(
        "warning",
        "RDMA packets over this port are smaller than they could be: with an Ethernet MTU of 1500, a packet carries 1024 bytes, and with "
        "4192 or more, 4096 bytes. Large messages then take more packets, and have less bandwidth.",
        "Set the PF's MTU to 9000, or at least 4192, when every switch and node of the fabric has it. VFs of a network with `mtu: pf` follow.",
    ),
    "roce-not-lossless": FindingKind(
        "note",
        "No priority of this port has priority flow control (PFC). A congested switch then drops RoCE packets, and throughput falls, "
        "unless ECN and the card's congestion control keep queues short.",
        "If the fabric is meant to be lossless, switch PFC on for RoCE's priority, on cards and switches alike (`dcb pfc set dev NETDEV "
        "prio-pfc 3:on`, or `mlnx_qos`), and have DSCP choose the priority.",
    ),
    "mtus-differ": FindingKind(
        "warning",
        "The rails of this node have different MTUs. A pod with several rails has the slowest rail's packets, and a node whose rails are as they "
        "should be cannot send this node its largest packets.",
        "Give all PFs of the fabric one MTU. On InfiniBand, all must also be in one mode, datagram or connected (`/sys/class/net/NETDEV/mode`).",
    ),
    "ranges-overlap": FindingKind(
        "error",
        "A pod with a rail of this network has a route over net1 to these addresses, so it reaches some other pods or Services no more.",
        "Choose another range for the network in node.yaml (`networks.NAME.ipam.range`). Pods that exist keep their addresses until they end.",
    ),
    "rp-filter-strict": FindingKind(
        "warning",
        "New pods get the node's strict filter of the reverse path, and this network leaves several rails of a pod to the kernel. A packet "
        "that comes by one rail from another rail's prefix is dropped without a message, since the main table leads back by another rail.",
        "Give the network `routing: auto` in node.yaml: Railnet then keeps the rails apart. Or set the filter to loose on the node, for "
        "new pods: `sysctl -w net.ipv4.conf.all.rp_filter=2`, and a file in /etc/sysctl.d.",
    ),
    "arp-ignore-unsuitable": FindingKind(
        "warning",
        "New pods get the node's `arp_ignore`, and with this value a pod's rails do not answer ARP requests as they should: other pods do "
        "not find a rail's address, or find it behind another rail. A smaller value that Railnet gives a rail does not count beside a "
        "larger one in `all`.",
        "Set `net.ipv4.conf.all.arp_ignore` and `net.ipv4.conf.default.arp_ignore` to 0 or 1 on the node, in /etc/sysctl.d, too. Pods that "
        "exist keep what they have.",
    ),
    "memlock-limited": FindingKind(
        "warning",
        "Containers inherit this limit. RDMA must lock the memory that it registers: beyond the limit ibv_reg_mr fails with ENOMEM, and "
        "NCCL may fall back to TCP without an error. A container of root with IPC_LOCK is not limited; another user is.",
        "Set `memlock: unlimited` in node.yaml, if the runtime has NRI: containers with a rail get that limit. Or set LimitMEMLOCK=infinity in "
        "the runtime's systemd unit (a drop-in), then restart the runtime; or set the limit for containers in the runtime's own configuration.",
    ),
    "pod-memlock-limited": FindingKind(
        "warning",
        "The container runtime is not limited, and a process of this pod is. RDMA in this process fails as soon as it registers more "
        "memory than the limit. The pod is older than the runtime's present limit, or the runtime is configured to give containers less, "
        "or a program lowered its own limit.",
        "Make the pod again. If the new pod has the same limit, set `memlock: unlimited` in node.yaml, if the runtime has NRI. Or look at the runtime's configuration for containers (`default_ulimits` of "
        "CRI-O, a base specification of containerd), and for `ulimit -l` in the pod's command.",
    ),
    "no-gpudirect": FindingKind(
        "warning",
        "Neither nvidia_peermem is loaded nor the open kernel modules that offer dma-buf. RDMA between the card and GPU memory is "
        "probably not available: data then goes through the host's memory.",
        "modprobe nvidia_peermem (and name it in /etc/modules-load.d), or install NVIDIA's open kernel modules.",
    ),
    "iommu-translates": FindingKind(
        "warning",
        "The IOMMU translates the addresses that these cards use. RDMA between card and GPU then goes up to the processor and back, or is refused.",
        "Unless virtual machines need it, boot with `iommu=pt` (and `intel_iommu=on`, where it is used).",
    ),
    "acs-redirects": FindingKind(
        "warning",
        "A PCI bridge between a card and a GPU has Access Control Services (ACS) on, so RDMA between both does not go by the PCI switch: "
        "each packet goes up to the processor and back, at a part of the speed, or is refused. Linux switches ACS on with an IOMMU, also "
        "with `iommu=pt`; some BIOSes do.",
        "Boot with `pci=disable_acs_redir=BRIDGE`, with all bridges of this report, separated by `;`, or switch ACS off in the BIOS. Until "
        "the next boot: `setpci -s BRIDGE ECAP_ACS+6.w=0:3c`. ACS keeps virtual machines apart that have devices of this node: where there "
        "are some, leave it on.",
    ),
    "clock-not-synchronised": FindingKind(
        "warning",
        "No program keeps this node's clock. If it goes wrong, the API server refuses the daemon's token, certificates are taken for ended, and logs "
        "of nodes cannot be compared.",
        "Run chronyd or systemd-timesyncd; `timedatectl` shows the state.",
    ),
    "conflist-missing": FindingKind(
        "error",
        "The container runtime does not call Railnet: new pods get no rail.",
        "The daemon writes the file when it can serve: see the findings about the daemon, and its log.",
    ),
    "conflist-not-first": FindingKind(
        "error",
        "The container runtime takes the first file of the folder, which is another network's: new pods get no rail.",
        "Remove or rename the file that comes first; Railnet takes its primary network from the files after its own.",
    ),
    "conflist-rewritten": FindingKind(
        "warning",
        "Another program changes or moves Railnet's CNI configuration again and again, and Railnet puts it back. Between the two the runtime "
        "may start pods without rails, or without that program's plugin.",
        "Have that program leave the file alone. Of Cilium it is `cni.exclusive`, which should be false. The page about other software "
        "(docs/beside-other-software.md) has the settings of others.",
    ),
    "bridge-of-another-lease": FindingKind(
        "warning",
        "The node's flannel lease has changed, and the bridge cni0 has the address of the lease before. The bridge plugin refuses new pods: "
        "`cni0 already has an IP address different from`. If flannel is not the primary network any more, both are leftovers.",
        "Drain the node, then `ip link delete cni0`: the next pod's ADD makes it again.",
    ),
    "daemon-silent": FindingKind(
        "error",
        "No pod with a rail can start on this node. Running pods keep their rails, and pods without a rail start.",
        "Look at the log of the node's Railnet pod. The findings about cards do not need the daemon.",
    ),
    "not-served": FindingKind(
        "error", "The daemon runs, and says why it does not serve the node.", "As the message says."
    ),
    "vf-unhealthy": FindingKind("warning", "kubelet gives these VFs to no new pod.", "As the message says."),
    "versions-differ": FindingKind(
        "warning",
        "The daemon and this command are of different versions: an upgrade is not finished.",
        "Wait for the DaemonSet's rollout, or delete the node's Railnet pod.",
    ),
    "rail-lost": FindingKind(
        "error",
        "The pod runs, and its rail is not in it any more: another program made the VFs again or bound them to its driver, a "
        "driver was loaded again, or the card was pulled. "
        "The kernel gives the new interface to the node, so nothing brings it back into a running pod.",
        "Delete the pod; its controller makes another, with a rail. Have what makes VFs or loads drivers leave the cards of running pods alone, "
        "and let Railnet make the VFs (`provision` in node.yaml).",
    ),
    "kubelet-disagrees": FindingKind(
        "warning",
        "The pod has these VFs, and kubelet has not given them to this pod, so it may give them to another one, which then waits. For a moment this is so "
        "while a pod ends. If it stays, the sandbox has had no DEL, or kubelet's state was deleted.",
        "Look again in a minute. If the pod does not exist any more, the runtime has not ended its sandbox: `crictl pods`. Else delete the pod; "
        "its controller makes another.",
    ),
    "quarantined-record": FindingKind(
        "warning",
        "The daemon does not believe this record of a pod. The VFs stay with the pods that have them.",
        "The daemon's log says what is wrong with it. Look at the file, then delete it.",
    ),
    "rail-errors": FindingKind(
        "warning",
        "The port of this rail is ACTIVE, and counts too many errors, or the kernel says that its card is broken. Jobs on the rail are slow or stop.",
        "As the message says. It is over by itself ten minutes after the last errors (docs/operations.md, "
        '"Errors of rails that are ACTIVE").',
    ),
    "kernel-log-unread": FindingKind(
        "note",
        "The daemon is to look for messages about cards in the kernel's log, and cannot read it. Nothing else depends on this.",
        "Set `railsCondition.kernelMessages: true` of the chart, which gives the daemon the device, and not the key of node.yaml alone. Or switch it off.",
    ),
}
OF_A_POD = {
    "pod-without-request": FindingKind(
        "warning",
        "Railnet gives net1 to a pod that requests a rail. This pod requests none, and no review adds the request, for the reason that is shown.",
        "Request a rail in the pod's container (`resources: {limits: {rdma/ib_vf: 1}}`), or label the pod or its namespace "
        '`railnet.io/net1: "true"`. Then make the pod again: requests of a pod that exists do not change.',
    ),
    "pod-not-reviewed": FindingKind(
        "error",
        "The pod should have a rail, and its request was not added when it was created: the admission helper was not installed, or was away and "
        "the pod was let in, or the labels came later.",
        "Install the helper (set webhook.enabled=true of the chart) if its webhook does not exist, then make the pod again. Pods that a review "
        "refuses say so in an event of their controller.",
    ),
    "pod-on-host-network": FindingKind(
        "warning",
        "A pod on the host's network shares the node's interfaces, so it gets no net1.",
        "Remove hostNetwork, or use the host's own cards on purpose (docs/training/host-network.md).",
    ),
    "pod-hides-its-rail": FindingKind(
        "warning",
        "The pod has a rail, and its own settings keep its programs from it, so its data may go over another network.",
        "Remove these settings from the job's template, and make the pod again. If they are on purpose, a rail is not needed: label the pod "
        '`railnet.io/net1: "false"`.',
    ),
    "pod-gated": FindingKind(
        "warning",
        "The pod waits behind a gate, or for a PodGroup, until its whole gang has a place. Without an event, the controllers do not run, or not with --gangs.",
        "As the message says. `kubectl -n railnet get pods` shows the controllers; docs/training/gangs.md says what a gang waits for.",
    ),
    "no-node-with-rails": FindingKind(
        "error",
        "No node offers as many rails as the pod requests, so the pod waits for ever.",
        "Run `railnet doctor` on a node that should have them. Request at most as many as one node has.",
    ),
    "node-with-rail-taint": FindingKind(
        "warning",
        "These nodes have enough rails, and take no new pods while one of their rails is not ACTIVE.",
        "Repair the rail that the condition names. A pod that may run there all the same needs a toleration (docs/operations.md, "
        '"The node\'s condition").',
    ),
    "rails-in-use": FindingKind(
        "warning",
        "Nodes with enough rails exist, and other pods have them.",
        "Wait, or end other pods. `railnet train top` shows the jobs that hold rails, and what is free.",
    ),
    "devices-tainted": FindingKind(
        "warning",
        "These nodes offer their VFs by DRA, and some of the VFs are unhealthy: their devices have a taint, so the scheduler gives them to no pod. The pod "
        "would have room if they were well.",
        "`railnet status` on the node has the reason of each VF, and `railnet doctor` there says what to do. The taint goes when the VF is well.",
    ),
    "claim-missing": FindingKind(
        "error",
        "The pod names a ResourceClaim, or a template of one, and the claim is not there. The scheduler does not look at the pod until it is, and its gang waits, too.",
        "Create the ResourceClaim, or the ResourceClaimTemplate, in the pod's namespace: kube-controller-manager then makes the claim. An event of the pod says "
        "if it cannot.",
    ),
    "claim-not-reserved": FindingKind(
        "error",
        "The pod has a node, and its ResourceClaim is not allocated, or is reserved for other pods only. kubelet does not start the pod.",
        "The scheduler allocates claims: a pod whose author wrote its node (`nodeName`) was never scheduled. Make the pod again without it; use a "
        "`nodeSelector`. A VF is one pod's: pods do not share a claim.",
    ),
    "pod-unschedulable": FindingKind(
        "warning", "The pod has no node yet, for a reason that is not about rails.", "As the scheduler says."
    ),
    "device-refused": FindingKind(
        "error",
        "kubelet could not give the pod its VFs: the node's daemon was away, or the topology manager found no VFs and CPUs on one NUMA node.",
        "A controller makes another pod. Make a bare pod again.",
    ),
    "sandbox-refused": FindingKind(
        "error",
        "The pod's network was not made. kubelet tries again by itself.",
        'The message says what was wrong. The codes of Railnet are in docs/operations.md, "CNI error codes".',
    ),
    "node-pod-not-ready": FindingKind(
        "error",
        "Railnet does not serve this node now, so no pod with a rail starts there.",
        "See the log of that pod, and run `railnet doctor` in it.",
    ),
    "pod-starts": FindingKind(
        "note", "The pod has a node, and nothing has been refused yet.", "Wait some seconds, then look again."
    ),
    "container-waits": FindingKind(
        "warning",
        "A container does not run, for the reason that kubelet reports. The pod's network is made before its containers.",
        "As the message says. If it names Railnet, docs/operations.md has the symptom in its first table.",
    ),
    "rail-not-active": FindingKind(
        "warning",
        "A rail of this node is not ACTIVE. The traffic of a pod that has a VF of it stands still on this rail.",
        "Run `railnet doctor` on the node: it says whether it is the cable, the switch or the subnet manager.",
    ),
    "pod-without-net1": FindingKind(
        "error",
        "The pod runs and requests a rail, and the daemon has not reported its rails. A sandbox that another network made has none. The report "
        "comes some milliseconds after the pod's start, and needs the right to patch the pod's status; with `publish.networkStatus: false` "
        "there is none, and the pod may have its rails.",
        "`railnet status` on the node shows whether the pod has a rail. If not, delete the pod; the finding about the CNI configuration "
        "of `railnet doctor` on the node says why another network made it.",
    ),
    "pod-has-net1": FindingKind("note", "The pod has its rails: net1 is there, with these addresses.", "Nothing."),
    "job-rails-apart": FindingKind(
        "error",
        "Pods of this job have no rail in common with this pod, and their rails do not reach each other, as `railnet validate` has found. The job "
        "hangs at its first connection over net1, without an error.",
        "Give the pods of the job the same rails: all of the node's (`railnet.io/vf: auto`), a resource of one rail, or claims that select the "
        'rail (docs/validate.md, "Which rails reach each other").',
    ),
    "job-rails-differ": FindingKind(
        "note",
        "Pods of this job have no rail in common with this pod. On a fabric with a spine they reach each other; without one, the job hangs.",
        "If the job hangs, run `railnet validate --publish`, and this command again. Without the right to write ConfigMaps of the namespace railnet, "
        "run `railnet validate -o json > FILE`, and this command with `--validated FILE`.",
    ),
    "pod-ended": FindingKind("note", "The pod has ended, so it needs no rail any more.", "Nothing."),
}
OF_A_CLUSTER = {
    "guid-of-two-pods": FindingKind(
        "error",
        "Pods have ports with the same GUID or MAC, as the pods' annotations say. The fabric delivers the packets of all of them to one, or to each "
        "in turn. Anyone who may change a pod may have written its annotation.",
        "Compare with `railnet status` on the nodes. If it is true, the GUIDs of two nodes' VFs are equal: let the daemon derive them "
        "(`provision` in node.yaml), or set them with `ip link set PF vf N node_guid …`, then make the pods again.",
    ),
    "address-of-two-pods": FindingKind(
        "error",
        "Pods of one network have the same address on a rail, as the pods' annotations say. Other pods reach one of them. Anyone who may change a "
        "pod may have written its annotation.",
        "Compare with `railnet status` on the nodes. If it is true, give the nodes one configuration of this network (node.yaml), with "
        "an IPAM plugin one range for each node, and each pod its own static address; then make one of the pods again.",
    ),
    "net1-in-cluster-range": FindingKind(
        "error",
        "A pod's address on a rail, as its annotation says, is also one of Services or of a node's pods. Pods with a rail of this network "
        "have a route over net1 to these addresses, so they reach some pods or Services no more. Anyone who may change a pod may have "
        "written its annotation.",
        "Compare with `railnet status` on the node. If it is true, choose another range for the network in node.yaml "
        "(`networks.NAME.ipam.range`). Pods that exist keep their addresses until they end.",
    ),
    "kubernetes-too-old": FindingKind(
        "warning",
        "No version of Railnet since 0.6 was made for this API server: what it lacks does not work, or fails without a message.",
        "Upgrade Kubernetes, or install Railnet 0.5.x.",
    ),
    "node-not-ready": FindingKind(
        "error",
        "The node takes no new pods. kubelet's message says why. If the network is not ready, Railnet's STATUS may be the reason: it fails while "
        "the primary network cannot make a pod's network, such as without flannel's lease.",
        "Run `railnet doctor` in that node's Railnet pod; if no pod of the node answers, look at kubelet on the node (`journalctl -u kubelet`).",
    ),
    "no-daemonset": FindingKind(
        "error",
        "The cluster has no DaemonSet of this name, so no node's daemon is kept running: Railnet is not installed, or this is another cluster.",
        "See which cluster the kubeconfig names (`kubectl config current-context`), or install Railnet (docs/install.md).",
    ),
    "update-unfinished": FindingKind(
        "warning",
        "Pods of one of Railnet's programs have different images: an update goes on, or stands still.",
        "`kubectl -n railnet rollout status` of the DaemonSet or Deployment says what it waits for. It does not go on while too many new pods are "
        "not ready: look at the log of a new pod. A node that does not answer keeps its old pod.",
    ),
    "programs-differ": FindingKind(
        "warning",
        "Railnet's programs have different versions: one was updated without the others.",
        "Upgrade all of Railnet to one version: `helm upgrade` does it. If you use daemonset/, apply it in that version, too.",
    ),
    "node-without-rails": FindingKind(
        "warning",
        "The node has a network card that could have rails, as its label says; Railnet serves the node, and offers no VF to pods.",
        "Run `railnet doctor` in that node's Railnet pod: it says whether VFs, drivers or ports are missing. A card that is not for pods is no fault.",
    ),
    "slices-incomplete": FindingKind(
        "error",
        "Not all ResourceSlices of the node's newest generation are there, so the scheduler gives none of its devices to a pod. It is so for some "
        "seconds while a daemon writes them.",
        "`railnet status` in that node's Railnet pod says why they are not as they should be. A slice of `rdma.railnet.io` that another program wrote has to be deleted.",
    ),
    "node-offers-both-ways": FindingKind(
        "error",
        "The node offers one resource by the device plugin and by ResourceSlices. A VF could be given twice; Railnet refuses the second pod.",
        "See that one Railnet serves the node, and what `offer` of its node.yaml says. After a change of `offer` it is so for half a minute at most: then kubelet "
        "removes what the other way left. Another device plugin may have the resource's name: give one of them another name.",
    ),
    "taint-remains": FindingKind(
        "warning",
        "The node takes no new pods because of Railnet's taint, though its condition names no rail that is not ACTIVE. The daemon removes the taint "
        "a moment after the condition, if it still keeps both.",
        "If the taint is there after a minute, see the log of the node's Railnet pod. If railsCondition.taint of the "
        "chart was switched off while the node had the taint, remove it by hand: `kubectl taint node NODE railnet.io/rails-not-active-`.",
    ),
}
OF_A_BUNDLE = {
    "not-in-the-bundle": FindingKind(
        "warning",
        "`railnet bundle` could not take this, or its bounds left it out. Nothing is known of it.",
        "As the message says; then make the bundle again.",
    ),
}
KINDS = {**OF_A_NODE, **OF_A_POD, **OF_A_CLUSTER, **OF_A_BUNDLE}
