"""The checks of what is around the cards: the daemon, the runtime, GPUs, the CNI configuration. Pure."""

from collections import Counter
from collections.abc import Iterator

from railnet import VERSION
from railnet.doctor.facts import Facts
from railnet.doctor.finding_kinds import Finding
from railnet.kernel.sysfs.acs_p2p_redirect import described, redirects
from railnet.kubelet.dra_manager_state import NAME

_OURS = "00-railnet.conflist"


def configuration(facts: Facts) -> Iterator[Finding]:
    """Find a node.yaml that the daemon does not take."""
    if facts.wrong_configuration is not None:
        yield Finding("wrong-configuration", "node.yaml", facts.wrong_configuration)


def daemon(facts: Facts) -> Iterator[Finding]:
    """Find a daemon that does not answer or does not serve, and what it says of VFs and records."""
    told = facts.daemon.told
    if told is None:
        yield Finding("daemon-silent", "daemon", facts.daemon.silence)
        return
    if told["version"] != VERSION:
        yield Finding("versions-differ", "daemon", f"the daemon is {told['version']}, this command is {VERSION}")
    for reason in told["reasons"]:
        yield Finding("not-served", "daemon", reason)
    reasons = Counter(vf["reason"] for vf in told["vfs"] if vf["reason"] is not None)
    for reason, count in reasons.items():
        yield Finding("vf-unhealthy", f"{count} {'VF' if count == 1 else 'VFs'}", reason)
    for path in told.get("quarantine", ()):  # a daemon of an older version does not send it
        yield Finding("quarantined-record", "daemon", path)
    for error in told.get("errors", ()):
        yield Finding("rail-errors", "daemon", error)
    if told.get("kernelLog"):
        yield Finding("kernel-log-unread", "daemon", told["kernelLog"])


def kubelet_folders(facts: Facts) -> Iterator[Finding]:
    """Find a kubelet whose folders are elsewhere, or absent."""
    kubelet = facts.kubelet
    if kubelet is None:
        return
    if kubelet.running is not None and kubelet.running.path != kubelet.looked_for.path:
        seen = f"Railnet looks in {kubelet.looked_for}, kubelet has {kubelet.running}"
        yield Finding("kubelet-elsewhere", "kubelet", seen)
    for folder in kubelet.missing:
        yield Finding("kubelet-folder-missing", "kubelet", folder)


def primary(facts: Facts) -> Iterator[Finding]:
    """Find a primary network for which Railnet's STATUS holds the node NotReady."""
    if facts.primary_trouble is not None:
        yield Finding("primary-not-available", "primary network", facts.primary_trouble)


def kubelets_view(facts: Facts) -> Iterator[Finding]:
    """Find VFs of pods that kubelet has not given to them."""
    if facts.allocated is None:
        return
    for sandbox in (facts.daemon.told or {}).get("sandboxes", ()):
        pod = sandbox["pod"]
        given = facts.allocated.get(pod["uid"], frozenset())
        unknown = sorted(rail["vf"] for rail in sandbox["rails"] if rail["vf"] not in given)
        if unknown:
            seen = f"kubelet has {', '.join(unknown)} for this pod neither in its checkpoint nor in {NAME}"
            yield Finding("kubelet-disagrees", f"{pod['namespace']}/{pod['name']}", seen)


def slices(facts: Facts) -> Iterator[Finding]:
    """Find ResourceSlices that are not as the node's VFs are. A daemon of the device plugin tells nothing."""
    told = (facts.daemon.told or {}).get("slices")
    if told:
        yield Finding("slices-outdated", "ResourceSlices", told)


def lost_rails(facts: Facts) -> Iterator[Finding]:
    """Find pods that run and have lost a rail."""
    for sandbox in (facts.daemon.told or {}).get("sandboxes", ()):
        pod = sandbox["pod"]
        for rail in sandbox["rails"]:
            if rail.get("lost"):  # a daemon of an older version does not send it
                seen = f"{rail['ifname']}: VF {rail['vf']} {rail['lost']}"
                yield Finding("rail-lost", f"{pod['namespace']}/{pod['name']}", seen)


def memlock(facts: Facts) -> Iterator[Finding]:
    """Find a container runtime with a finite limit of locked memory. A node without rails needs none."""
    if not facts.inventory.rails:
        return
    for process in facts.runtimes:
        if process.memlock is not None:
            seen = f"Max locked memory is {process.memlock} bytes in /proc/{process.pid}/limits"
            yield Finding("memlock-limited", f"{process.name} ({process.pid})", seen)


def memlock_of_pods(facts: Facts) -> Iterator[Finding]:
    """Find pods with rails that may lock little memory, under a runtime that is not limited. Else the runtime is the finding."""
    if any(process.memlock is not None for process in facts.runtimes):
        return
    pods = {sandbox["pod"]["uid"]: sandbox["pod"] for sandbox in (facts.daemon.told or {}).get("sandboxes", ())}
    limited = [process for process in facts.pod_processes if process.memlock is not None and not process.ipc_lock]
    for uid, pod in pods.items():
        of_pod = [process for process in limited if process.uid == uid]
        if of_pod:
            first, more = of_pod[0], f"; {len(of_pod) - 1} more of its processes" if of_pod[1:] else ""
            seen = f"Max locked memory is {first.memlock} bytes in /proc/{first.pid}/limits ({first.name}), without IPC_LOCK{more}"
            yield Finding("pod-memlock-limited", f"{pod['namespace']}/{pod['name']}", seen)


def bridge(facts: Facts) -> Iterator[Finding]:
    """Find a bridge of an older lease."""
    if facts.bridge is not None and not facts.bridge.present:
        seen = f"FLANNEL_SUBNET is of {facts.bridge.gateway}, and neither cni0 nor another link has this address"
        yield Finding("bridge-of-another-lease", "cni0", seen)


def gpudirect(facts: Facts) -> Iterator[Finding]:
    """Find GPUs that no card can reach by RDMA."""
    gpus = facts.gpus
    if facts.inventory.rails and gpus.addresses and not gpus.peermem and not gpus.open_modules:
        seen = "/sys/module/nvidia_peermem is absent, and /proc/driver/nvidia/version names no open kernel module"
        yield Finding("no-gpudirect", f"{len(gpus.addresses)} GPUs", seen)


def iommu(facts: Facts) -> Iterator[Finding]:
    """Find cards beside GPUs with an IOMMU that translates."""
    translated = sorted(str(address) for address, kind in facts.iommu.items() if kind != "identity")
    if facts.gpus.addresses and translated:
        kinds = ", ".join(sorted({kind for kind in facts.iommu.values() if kind != "identity"}))
        yield Finding("iommu-translates", ", ".join(translated), f"iommu_group/type is {kinds}")


def acs(facts: Facts) -> Iterator[Finding]:
    """Find PCI bridges that send packets between a card and a GPU the long way. A bridge that could not be read is not judged."""
    for bridge in facts.pci_bridges:
        if bridge.acs_control is not None and redirects(bridge.acs_control):
            ends = " and GPU ".join(", ".join(map(str, addresses)) for addresses in (bridge.cards, bridge.gpus))
            seen = f"ACS Control {bridge.acs_control:#06x}: {described(bridge.acs_control)}; between card {ends}"
            yield Finding("acs-redirects", f"bridge {bridge.address}", seen)


def rewrites(facts: Facts) -> Iterator[Finding]:
    """Find a program that changes Railnet's CNI configuration again and again. A daemon of an older version does not tell."""
    told = (facts.daemon.told or {}).get("rewrites")
    if told is not None:
        yield Finding("conflist-rewritten", _OURS, told)


def conflist(facts: Facts) -> Iterator[Finding]:
    """Find a runtime that does not call Railnet."""
    names = facts.configurations
    if names is None:
        return
    if _OURS not in names:
        yield Finding(
            "conflist-missing",
            facts.conflist_folder,
            f"{_OURS} is absent; the first is {names[0] if names else 'none'}",
        )
    elif names[0] != _OURS:
        yield Finding("conflist-not-first", facts.conflist_folder, f"{names[0]} comes before {_OURS}")
