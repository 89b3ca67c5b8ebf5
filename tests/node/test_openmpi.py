"""Open MPI 4 and 5 themselves, in three network namespaces as in an MPIJob: a launcher with eth0, and two workers with eth0 and net1.

What a review adds must send the ranks' data over net1, and must end no job, whatever lists of interfaces the job has. The programs are
Debian's, of the images at $RAILNET_OPENMPI_IMAGE and $RAILNET_OPENMPI5_IMAGE (scripts/job-image). A script that enters a worker's
namespace is in the place of ssh.
"""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from railnet.admission.environment import wanted
from railnet.jobs.operators import Part
from simnode.linux import libc, netns

_IMAGES = {"4": "RAILNET_OPENMPI_IMAGE", "5": "RAILNET_OPENMPI5_IMAGE"}
_FOLDER = Path("/run/netns")
_WORKERS = {"w1": "10.1.0.1", "w2": "10.1.0.2"}
_PODS = {"launcher": "10.1.0.9", **_WORKERS}
_MESSAGE_BYTES = 8 << 20
_LITTLE = 1 << 20
_AGENT = """\
#!/bin/sh
host=$1; shift
case $host in 10.1.0.1) pod=w1;; 10.1.0.2) pod=w2;; esac
exec env -i PATH=/usr/bin:/bin HOME=/root busybox nsenter --net=/run/netns/$pod -- busybox unshare -u -- sh -c "busybox hostname $pod; $*"
"""
# Each rank says how many bytes came on each interface of its pod.
_PROGRAM = f"""\
import json
from mpi4py import MPI

def counted():
    lines = [line.replace(":", " ").split() for line in open("/proc/net/dev").read().splitlines()[2:]]
    return {{fields[0]: int(fields[1]) for fields in lines}}

world, before = MPI.COMM_WORLD, counted()
peer = (world.rank + 1) % world.size
for size in (8, {_MESSAGE_BYTES}):
    assert len(world.sendrecv(bytearray(size), dest=peer, source=peer)) == size
buffer, received = bytearray({_MESSAGE_BYTES}), bytearray({_MESSAGE_BYTES})
world.Alltoall([buffer, MPI.BYTE], [received, MPI.BYTE])
holes = MPI.BYTE.Create_vector({_MESSAGE_BYTES} // 2, 1, 2).Commit()
world.Sendrecv([buffer, 1, holes], peer, recvbuf=[received, 1, holes], source=peer)
print("came", json.dumps({{name: count - before[name] for name, count in counted().items()}}), flush=True)
"""


class Ended(NamedTuple):
    """An mpirun that has ended: its status, and for each rank the bytes that came, by interface."""

    status: int
    came: list[dict[str, int]]
    output: str


class Version(NamedTuple):
    """A version of Open MPI, and the root of its files."""

    name: str
    root: Path


@pytest.fixture(scope="module")
def pods() -> Iterator[None]:
    for pod in _PODS:
        netns.create(_FOLDER / pod)
    try:
        _join("eth0", _PODS)
        _join("net1", {"w1": "10.56.0.1", "w2": "10.56.0.2"})
        yield
    finally:
        for pod in _PODS:
            netns.remove(_FOLDER / pod)
        for name in ("eth0", "net1"):
            _ip("link", "delete", f"br-{name}")


def _join(name: str, addresses: dict[str, str]) -> None:
    """Join pods by a bridge, each with an interface of this name."""
    _ip("link", "add", f"br-{name}", "up", "type", "bridge")
    for pod, address in addresses.items():
        _ip("link", "add", f"{pod}-{name}", "type", "veth", "peer", "name", name, "netns", pod)
        _ip("link", "set", f"{pod}-{name}", "master", f"br-{name}", "up")
        _ip("-n", pod, "address", "add", f"{address}/24", "dev", name)
        _ip("-n", pod, "link", "set", name, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture(scope="module", params=list(_IMAGES))
def version(request: pytest.FixtureRequest, pods: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Version]:
    """Provide a version's files, with the folders of the kernel and the namespaces among them."""
    root = tmp_path_factory.mktemp("openmpi")
    _unpack(Path(os.environ[_IMAGES[request.param]]), root)
    (root / "run/netns").mkdir(parents=True)
    mounts = {"/proc": "proc", "/dev": "dev", "/sys": "sys", str(_FOLDER): "run/netns"}
    for source, target in mounts.items():
        libc.mount(source, str(root / target), flags=libc.MS_BIND | libc.MS_REC)
    (root / "tmp/agent").write_text(_AGENT)
    (root / "tmp/agent").chmod(0o755)
    (root / "tmp/program.py").write_text(_PROGRAM)
    yield Version(request.param, root)
    for target in mounts.values():
        libc.unmount(str(root / target))
    shutil.rmtree(root)


def _unpack(image: Path, root: Path) -> None:
    """Unpack the layer of an image of one layer: its largest file."""
    with tarfile.open(image) as archive:
        layer = max(archive.getmembers(), key=lambda member: member.size)
    with subprocess.Popen(
        ["tar", "--extract", "--to-stdout", "--file", image, layer.name], stdout=subprocess.PIPE
    ) as tar:
        subprocess.run(["tar", "--extract", "--directory", root], stdin=tar.stdout, check=True)


class Job(NamedTuple):
    """What a job has of its own: arguments of mpirun, variables of the launcher, and lines of its image's files of parameters."""

    arguments: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    parameters: str = ""
    prte_parameters: str = ""


def _run(version: Version, job: Job) -> Ended:
    """Run a job of two ranks whose launcher has what a review adds to it."""
    added = [f"{variable.name}={variable.value}" for variable in wanted(Part.LAUNCHES)]
    agents = [f"{name}=/tmp/agent" for name in ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent")]
    root = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PATH=/usr/bin:/bin", "HOME=/root"]
    mpirun = ["mpirun", "-H", "10.1.0.1:1,10.1.0.2:1", "-n", "2", *job.arguments, "python3", "/tmp/program.py"]
    command = ["chroot", str(version.root), "/bin/busybox", "env", "-i", *root, *agents, *added, *job.env, *mpirun]
    with _parameters(version, "openmpi", job.parameters), _parameters(version, "prte", job.prte_parameters):
        ended = subprocess.run(
            ["ip", "netns", "exec", "launcher", *command], capture_output=True, text=True, timeout=120, check=False
        )
    came = [json.loads(line.removeprefix("came ")) for line in ended.stdout.splitlines() if line.startswith("came ")]
    return Ended(ended.returncode, came, ended.stdout + ended.stderr)


@contextmanager
def _parameters(version: Version, program: str, lines: str) -> Iterator[None]:
    """Have lines in an image's file of parameters for a while."""
    file = version.root / f"etc/openmpi/{program}-mca-params.conf"
    before = file.read_text() if file.exists() else ""
    file.write_text(f"{before}\n{lines}\n")
    yield
    file.write_text(before)


ANY_LIST = {
    "none": Job(),
    "an exclude among the arguments, as in Horovod's examples": Job(("-mca", "btl_tcp_if_exclude", "lo,docker0")),
    "an exclude in the environment": Job(env=("OMPI_MCA_btl_tcp_if_exclude=lo,docker0",)),
    "an exclude in the image's file": Job(parameters="btl_tcp_if_exclude = lo,docker0"),
    "an include of net1": Job(("--mca", "btl_tcp_if_include", "net1")),
    "an exclude for the daemons": Job(("-mca", "oob_tcp_if_exclude", "lo,docker0")),
    "an exclude for the daemons in the image's files": Job(
        parameters="oob_tcp_if_exclude = lo,docker0", prte_parameters="prte_if_exclude = lo,docker0"
    ),
}


@pytest.mark.parametrize("job", ANY_LIST.values(), ids=list(ANY_LIST))
def test_job_runs_and_its_data_goes_over_net1_whatever_list_it_has(version: Version, job: Job) -> None:
    ended = _run(version, job)

    assert ended.status == 0, ended.output
    assert len(ended.came) == len(_WORKERS)
    for interfaces in ended.came:
        assert interfaces["net1"] > 2 * _MESSAGE_BYTES
        assert interfaces["eth0"] < _LITTLE


OWN_INCLUDE = {
    "among the arguments": Job(("-mca", "btl_tcp_if_include", "eth0")),
    "in the environment": Job(env=("OMPI_MCA_btl_tcp_if_include=eth0",)),
    "in the image's file": Job(parameters="btl_tcp_if_include = eth0"),
}


@pytest.mark.parametrize("job", OWN_INCLUDE.values(), ids=list(OWN_INCLUDE))
def test_job_keeps_the_interface_that_its_own_list_names(version: Version, job: Job) -> None:
    ended = _run(version, job)

    assert ended.status == 0, ended.output
    for interfaces in ended.came:
        assert interfaces["eth0"] > 2 * _MESSAGE_BYTES


def test_list_of_interfaces_in_the_environment_ends_a_job_with_the_other_list(version: Version) -> None:
    """Why Railnet sets no list: Open MPI refuses both, wherever they come from."""
    job = Job(env=("OMPI_MCA_btl_tcp_if_include=net1",), parameters="btl_tcp_if_exclude = lo,docker0")

    assert _run(version, job).status != 0
