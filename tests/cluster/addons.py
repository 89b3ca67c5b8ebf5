"""What a cluster has before Railnet: flannel's DaemonSet and CoreDNS, by their own manifests, with images of the built programs."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import images
from tests.cluster.ground import DNS_ADDRESS
from tests.cluster.images import Image
from tests.cluster.kubectl import Kubectl

_FLANNEL, _FLANNEL_PLUGIN = "docker.io/local/flannel:1", "docker.io/local/flannel-cni-plugin:1"
_COREDNS = "docker.io/local/coredns:1"
_XTABLES = Path("/usr/lib/x86_64-linux-gnu/xtables")
# The plugin is of a release that speaks at most 0.4.0 of the CNI specification (tests/programs/flannel-cni): no registry has a newer one.
_FLANNEL_VALUES = {
    '"cniVersion": "1.0.0"': '"cniVersion": "0.3.1"',
    # By default flanneld looks for its iptables rules each five seconds, which is a sixth of what a cluster at rest costs.
    "- --kube-subnet-mgr": "- --kube-subnet-mgr\n        - --iptables-resync=60",
}
_DNS_VALUES = {
    "__DNS__DOMAIN__": "cluster.local",
    "__DNS__SERVER__": DNS_ADDRESS,
    "__DNS__MEMORY__LIMIT__": "170Mi",
    "__MACHINE_GENERATED_WARNING__": "",
}


def write_images(folder: Path) -> list[Path]:
    """Write the images of all that is here into a folder; return their archives."""
    return [*write_flannel_images(folder), _write(folder, images.of_program(_COREDNS, "coredns", "coredns"))]


def write_flannel_images(folder: Path) -> list[Path]:
    """Write the images of flannel's DaemonSet into a folder; return their archives."""
    return [_write(folder, _flannel()), _write(folder, _flannel_plugin())]


def _write(folder: Path, image: Image) -> Path:
    archive = folder / f"{image.name.rpartition('/')[2]}.tar"
    image.write(archive)
    return archive


def apply_flannel(kubectl: Kubectl) -> None:
    """Apply kube-flannel.yml as it is, but for the images' names and for `_FLANNEL_VALUES`."""
    kubectl.apply(*map(_with_own_images, _manifest("flanneld", "kube-flannel.yml", _FLANNEL_VALUES)))


def apply_coredns(kubectl: Kubectl, node: str) -> None:
    """Apply the manifest of Kubernetes' own add-on; its pod is on one node, so that the leftovers of the others are pods' of tests."""

    def on_node(thing: dict[str, Any]) -> dict[str, Any]:
        if thing["kind"] == "Deployment":
            spec = thing["spec"]["template"]["spec"]
            spec["nodeSelector"] = {"kubernetes.io/hostname": node}
            spec["tolerations"] = [{"operator": "Exists"}]
        return _with_own_images(thing)

    kubectl.apply(*map(on_node, _manifest("kube-apiserver", "coredns.yaml.base", _DNS_VALUES)))


def _flannel() -> Image:
    """Return the image of flanneld, with this machine's iptables, which it runs."""
    iptables = images.program("iptables").resolve()
    extensions = {str(path).removeprefix("/"): path for path in _XTABLES.glob("*.so")}
    links = {
        f"usr/sbin/{prefix}{suffix}": iptables.name
        for prefix in ("iptables", "ip6tables")
        for suffix in ("", "-save", "-restore")
    }
    files = {
        "opt/bin/flanneld": images.program("flanneld"),
        "opt/bin/install-conf": images.program("install-conf"),
        f"usr/sbin/{iptables.name}": iptables,
        **images.with_libraries(iptables),
        **extensions,
    }
    return Image(_FLANNEL, files, links)


def _flannel_plugin() -> Image:
    made = images.busybox(_FLANNEL_PLUGIN)
    return made._replace(files={**made.files, "flannel": images.program("flannel")})


def _with_own_images(thing: dict[str, Any]) -> dict[str, Any]:
    """Name the images of the built programs in place of the published ones."""
    spec = thing.get("spec", {}).get("template", {}).get("spec", {})
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container["image"] = _own(container["image"])
    return thing


def _own(image: str) -> str:
    name = image.rpartition("/")[2].partition(":")[0]
    return f"docker.io/local/{name}:1"


def _manifest(program: str, name: str, values: Mapping[str, str] = {}) -> list[dict[str, Any]]:
    """Read a manifest that is beside a built program (scripts/build-cluster-programs)."""
    folder = Path(shutil.which(program) or program).parent / "manifests"
    (path,) = folder.rglob(name)
    text = path.read_text()
    for key, value in values.items():
        text = text.replace(key, value)
    return [thing for thing in yaml.safe_load_all(text) if thing]
