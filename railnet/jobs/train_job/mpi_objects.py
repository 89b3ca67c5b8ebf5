"""The objects of an MPI job of `railnet train` in a cluster without an operator: an Indexed Job, a Service for its names, and a Secret with keys.

All pods are workers. Worker 0 also runs the command, which is `mpirun` with its options, and starts the ranks of the others by their sshd. When the
command has ended well, the Job is complete, and Kubernetes ends the other workers (`successPolicy`). A command that fails is started again, as often
as `retries` says; after that the Job has failed, and Kubernetes ends all workers.

ssh goes over eth0, by the names of the Service. The data of the ranks go over net1, by the variables that the admission helper adds.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from railnet.errors import Misconfigured
from railnet.jobs import railnet_labels
from railnet.jobs.train_job.objects import JsonObject, container_of, pod_metadata, pod_spec
from railnet.jobs.train_job.train_job import WORKER, Contradictions, TrainingJob

SUCCESS_POLICY = "successPolicy"
_PORT = 2222  # a user that is not root may open it, and the node's own sshd has 22
_FIRST_SECONDS = 3
_MOST_REFUSALS = 30  # of one worker, a second apart
# Of one worker. While its image is fetched its name leads to it, and nothing listens there; other errors do not come from that.
_MINUTES_TO_SSHD, _MINUTES_TO_SSH = 30, 5
_VOLUME, _MOUNT = "railnet-ssh", "/etc/railnet-ssh"
# ssh demands that its files belong to the container's user. A folder of the image may be a volume that all workers share, so the pod has one of its own.
_KEYS_VOLUME, _KEYS = "railnet-ssh-files", "/run/railnet-ssh"
_KEYS_BYTES = "8Mi"  # a Secret has at most 1 MiB, and the kernel gives a process at most 6 MiB of arguments and environment (execve(2))
# The options of ssh that come with mpirun, and the hosts: of Open MPI 4, then of Open MPI 5 (PRRTE). What the user has set stays.
_OF_MPIRUN = {
    "OMPI_MCA_plm_rsh_args": f"-F {_KEYS}/ssh_config",
    "OMPI_MCA_orte_default_hostfile": f"{_KEYS}/hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "PRTE_MCA_plm_ssh_args": f"-F {_KEYS}/ssh_config",
    "PRTE_MCA_prte_default_hostfile": f"{_KEYS}/hostfile",
    "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
}
_SSH_CONFIG = f"""\
Host *
    Port {_PORT}
    IdentityFile {_KEYS}/id_ed25519
    IdentitiesOnly yes
    UserKnownHostsFile {_KEYS}/known_hosts
    GlobalKnownHostsFile /dev/null
    CheckHostIP no
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 5
    LogLevel ERROR
"""
# With the level INFO sshd says why it refuses a user.
_SSHD_CONFIG = f"""\
Port {_PORT}
HostKey {_KEYS}/host_ed25519
AuthorizedKeysFile {_KEYS}/authorized_keys
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
LogLevel INFO
"""
# sshd gives a rank nothing of its container's environment, so the worker keeps it in a file. The shell that wrote the file reads it: the user's own may
# be another one, and bash writes what dash cannot read. A bash that is /bin/sh would end at a variable of the image that it does not let change.
_COMMAND_OF_SSH = f"""\
exec /bin/sh -c '[ -z "$BASH_VERSION" ] || set +o posix; . {_KEYS}/environment; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'"""
# Other names are lost in dash and busybox, and these in bash ("Bash Variables" in its manual).
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READ_ONLY = ("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID")
# sshd refuses an account whose password begins with "!" (auth.c, LOCKED_PASSWD_PREFIX), and starts a rank by the user's own shell. Without root's rights
# it does not read /etc/shadow. A user whom /etc/passwd does not have is left to ssh. Only what the shell has in itself is needed.
_CHECK_USER = """\
    uid='' user=''
    while read -r key uid _; do [ "$key" != Uid: ] || break; done </proc/self/status
    while IFS=: read -r user password id _ _ _ program || [ -n "$user" ]; do [ "$id" != "$uid" ] || break; done </etc/passwd
    [ -n "$user" ] || exit 0
    if [ -r /etc/shadow ]; then
        while IFS=: read -r name hash _ || [ -n "$name" ]; do [ "$name" != "$user" ] || password=$hash; done </etc/shadow
    fi
    case $password in
    !*) echo "railnet: the account of $user is locked in this image, so sshd refuses mpirun; add to the Dockerfile: RUN usermod -p '*' $user" >&2; exit 1 ;;
    esac
    case ${program:=/bin/sh} in
    */nologin | */false) ;;
    *) [ ! -x "$program" ] || exit 0 ;;
    esac
    echo "railnet: sshd starts ranks by the shell of $user, and $program starts nothing; add to the Dockerfile: RUN usermod -s /bin/sh $user" >&2
    exit 1
"""
_SCRIPT = f"""\
(
    umask 077
    cp -f {_MOUNT}/* {_KEYS}/ && export -p >{_KEYS}/environment
) || {{ echo "railnet: {_KEYS}, a volume of this pod, cannot be written; the line before says why" >&2; exit 1; }}
[ ! -s {_KEYS}/others ] || (
{_CHECK_USER}) || exit 1
if [ "$JOB_COMPLETION_INDEX" != 0 ]; then
    sshd=$(command -v sshd || command -v /usr/sbin/sshd) || {{
        echo "railnet: this image has no sshd, by which mpirun starts the ranks; add the package openssh-server to it" >&2
        exit 1
    }}
    mkdir -p /run/sshd 2>/dev/null
    exec "$sshd" -D -e -f {_KEYS}/sshd_config
fi
command -v ssh >/dev/null || {{
    echo "railnet: this image has no ssh, by which mpirun starts the ranks; add the package openssh-client to it" >&2
    exit 1
}}
# A DNS server keeps the answer that a name does not exist for up to 30 s, and the pods of a job begin at almost the same moment.
[ -s {_KEYS}/others ] && sleep {_FIRST_SECONDS}
(
    while read -r host _; do
        read -r now _ </proc/uptime
        tries=0 refusals=0 no_pod=${{now%.*}} no_sshd=${{now%.*}}
        until said=$(ssh -F {_KEYS}/ssh_config "$host" true </dev/null 2>&1); do
            status=$? why=$said
            read -r now _ </proc/uptime
            now=${{now%.*}}
            case $status:$said in
            255:*"Permission denied"* | 255:*"No user exists"*) refusals=$((refusals + 1)) ;;
            255:*"Could not resolve"*) no_pod=$now no_sshd=$now ;;
            255:*"Connection refused"*)
                no_sshd=$now why="nothing listens on its port {_PORT} (Connection refused); its log may say why"
                ;;
            255:*"Host key verification failed"*) # for a moment it can be a pod of an older job of this name
                why="its host key is not the one of this job (Host key verification failed); run railnet train down, and then up"
                ;;
            255:*"timed out"*) why="its port {_PORT} does not answer; a NetworkPolicy that closes it between the job's pods does that ($said)" ;;
            255:*) ;;
            *) refusals=$((refusals + 1)) ;;
            esac
            [ $((tries % 30)) != 0 ] || echo "railnet: waiting for $host: $said" >&2
            if [ $refusals = {_MOST_REFUSALS} ]; then
                echo "railnet: $host has refused ssh {_MOST_REFUSALS} times: $said; the log of that worker may say more" >&2
                exit 1
            fi
            minutes=''
            [ $((now - no_sshd)) -lt {_MINUTES_TO_SSH * 60} ] || minutes={_MINUTES_TO_SSH}
            [ $((now - no_pod)) -lt {_MINUTES_TO_SSHD * 60} ] || minutes={_MINUTES_TO_SSHD}
            if [ -n "$minutes" ]; then
                echo "railnet: ssh has not reached $host for $minutes minutes: $why" >&2
                exit 1
            fi
            tries=$((tries + 1))
            sleep 1
        done
    done <{_KEYS}/others
) || exit 1
{"".join(f': "${{{name}:={value}}}"{chr(10)}' for name, value in _OF_MPIRUN.items())}\
export {" ".join(_OF_MPIRUN)}
exec "$@"
"""


class KeyPair(NamedTuple):
    """A private key as OpenSSH's file has it, and the public one as a line without a comment."""

    private: str
    public: str


class SshKeys(NamedTuple):
    """The key that lets mpirun in, and the key by which it knows the workers."""

    user: KeyPair
    host: KeyPair


def check_mpi(job: TrainingJob) -> None:
    """Check that an MPI job can run without an operator.

    Raises:
        Misconfigured: it cannot; the message begins with a key of the file.
    """
    if not job.command and job.script is None:
        raise Misconfigured(
            "command is missing, and worker 0 has to start the ranks; add command: [mpirun, …], or give the job to mpi-operator, whose launcher runs "
            "what the image says: --as mpijob"
        )
    if job.rendezvous == "net1":
        raise Misconfigured(
            "rendezvous is net1, and mpirun reaches the workers by ssh on eth0 (the data of the ranks go over net1 all the same); remove rendezvous"
        )
    lost = list(_lost_variables(job))
    if lost:
        raise Contradictions(lost)


def _lost_variables(job: TrainingJob) -> Iterator[str]:
    for name in job.env:
        if _SHELL_NAME.fullmatch(name) is None:
            yield f"env.{name} does not reach the ranks: /bin/sh keeps only names of letters, digits and _; choose another name"
        elif name in _READ_ONLY:
            yield f"env.{name} does not reach the ranks: it is a variable of the shell itself, by which they start; choose another name"


def mpi_objects(job: TrainingJob, keys: SshKeys) -> Iterator[JsonObject]:
    """Yield all objects but the owner: what the Job needs, then the Job."""
    yield {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(job, _secret(job)),
        "stringData": _files(job, keys),
    }
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, job.name),
        "spec": {
            "clusterIP": "None",
            # A name may be asked for before its pod is ready.
            "publishNotReadyAddresses": True,
            "selector": {railnet_labels.TRAIN: job.name},
            "ports": [{"name": "ssh", "port": _PORT, "targetPort": _PORT}],
        },
    }
    yield _job(job)


def _metadata(job: TrainingJob, name: str) -> JsonObject:
    return {"name": name, "namespace": job.in_namespace, "labels": {railnet_labels.TRAIN: job.name}}


def _secret(job: TrainingJob) -> str:
    return f"{job.name}-ssh"


def _files(job: TrainingJob, keys: SshKeys) -> dict[str, str]:
    others = [f"{job.name}-{index}.{job.name}.{job.in_namespace}.svc" for index in range(1, job.workers)]
    # Open MPI 5 knows itself by its host name alone, and would start a daemon by ssh for another.
    hosts = [f"{job.name}-0", *others]
    command = _COMMAND_OF_SSH.replace('"', r"\"")
    return {
        "id_ed25519": keys.user.private,
        "authorized_keys": f'restrict,command="{command}" {keys.user.public}\n',
        "host_ed25519": keys.host.private,
        "known_hosts": f"* {keys.host.public}\n",
        "ssh_config": _SSH_CONFIG,
        "sshd_config": _SSHD_CONFIG,
        "hostfile": "".join(f"{host} slots={job.processes_each}\n" for host in hosts),
        "others": "".join(f"{host}\n" for host in others),
    }


def _job(job: TrainingJob) -> JsonObject:
    retries = {} if job.retries is None else {"backoffLimit": job.retries}
    # The labels of a task make the Job worker 0's own: it ends as worker 0 does.
    metadata = _metadata(job, job.name)
    metadata["labels"] = {"name": job.name, "job": WORKER, "task": "0", **metadata["labels"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": job.workers,
            "parallelism": job.workers,
            SUCCESS_POLICY: {"rules": [{"succeededIndexes": "0"}]},
            **retries,
            "template": _template(job),
        },
    }


def _template(job: TrainingJob) -> JsonObject:
    metadata = pod_metadata(job, {railnet_labels.TRAIN: job.name}, job.workers)
    metadata["annotations"] = {**metadata.get("annotations", {}), railnet_labels.SIZE: str(job.workers)}
    spec, container = pod_spec(job, job.restart), container_of(job, job.name, gpus=True)
    secret = {"secretName": _secret(job), "defaultMode": 0o444}  # a container's user need not be root
    container |= {
        "command": ["/bin/sh", "-c", _SCRIPT, "railnet", *container.get("command", ())],
        "env": [{"name": name, "value": value} for name, value in job.env.items()],
        "ports": [{"name": "ssh", "containerPort": _PORT}],
        "volumeMounts": [
            *container.get("volumeMounts", ()),
            {"name": _VOLUME, "mountPath": _MOUNT, "readOnly": True},
            {"name": _KEYS_VOLUME, "mountPath": _KEYS},
        ],
    }
    own = [
        {"name": _VOLUME, "secret": secret},
        {"name": _KEYS_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": _KEYS_BYTES}},
    ]
    volumes = [*spec.get("volumes", ()), *own]
    return {
        "metadata": metadata,
        "spec": {**spec, "subdomain": job.name, "volumes": volumes, "containers": [container]},
    }
