"""The slow lane: serve a request without a daemon.

For a pod without a rail, the primary chain runs here. A pod with a rail waits a short time for the daemon and is then refused: a
training pod without its rail would use TCP, and no error would show it.
"""

import posix
import time

from cni.host import appended_plugins, chain, daemon, frames, status
from cni.host.delegate import Delegate, find
from cni.host.environment import ADD, CHECK, GC, STATUS, Environment
from cni.host.errors import DECODE, NOT_AVAILABLE, TRY_AGAIN, CniError
from cni.host.lock import RUN, Lock
from cni.host.netconf import DEFAULT_DEVICE_PLUGINS, DEFAULT_KUBELET, NetConf, parse
from railnet.kubelet import checkpoint, dra_manager_state
from railnet.kubelet.dra_driver_name import DRIVER

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from collections.abc import Generator

_RETRY_SECONDS = 0.1
_MOST_BYTES = 16 << 20  # of a file of kubelet: a device takes some 250 bytes
# The daemon's records of prepared claims (railnet/dra/prepared_claim_files.py).
_RECORDED_CLAIMS = RUN + "/claims"
_NO_UID = "the runtime did not pass K8S_POD_UID in CNI_ARGS"


def serve(environment: Environment, stdin: bytes, netns_fd: int, held: Lock, began: float) -> tuple[int, bytes]:
    """Serve a request. Return the exit status and what to print. GC runs the primary's part only, STATUS all.

    `held` is taken before the chain runs. `began` is when the request was first sent to the daemon (`time.monotonic`): the
    wait for the daemon counts from then.
    """
    version = "1.0.0"
    try:
        conf = parse(stdin, environment.command)
        version = conf.version
        if environment.command in (ADD, CHECK):
            rails = has_rails(environment, conf)
            if rails:
                return _wait_for_daemon(environment, stdin, netns_fd, held, began + conf.seconds["daemon"], conf)
        held.take()
        return 0, _run_chain(environment, conf)
    except CniError as error:
        return 1, error.stdout(version)


def serve_on(
    environment: Environment,
    stdin: bytes,
    netns_fd: int,
    held: Lock,
    began: float,
    executed: "list[daemon.ExecutedDelegate | None]",
) -> tuple[int, bytes]:
    """Serve a request of which the daemon had these delegates executed before it was lost.

    For a pod without a rail the chain goes on where it was: no delegate runs twice. If it cannot (a delegate did not run to its
    end, the pod has a rail), what the chain has done is undone before an ADD is served again.
    """
    if not executed:
        return serve(environment, stdin, netns_fd, held, began)
    version = "1.0.0"
    try:
        conf = parse(stdin, environment.command)
        version = conf.version
        rails = environment.command in (ADD, CHECK) and has_rails(environment, conf)
    except CniError as error:
        _undo(environment, stdin, held)
        return 1, error.stdout(version)
    if not rails:
        try:
            held.take()
            return 0, _go_on(environment, conf, executed) or b""
        except CniError as error:
            return 1, error.stdout(version)
        except _OtherChain:
            pass
    _undo(environment, stdin, held)
    return serve(environment, stdin, netns_fd, held, began)


def _undo(environment: Environment, stdin: bytes, held: Lock) -> None:
    """Undo what the chain of a lost ADD may have done."""
    if environment.command != ADD:
        return
    try:
        conf = parse(stdin)
        held.take()
        _drive(chain.delete(_primary(ADD, conf), conf.runtime_config, None), environment, conf)
    except CniError:
        return  # the ADD that follows, or the runtime's DEL after its failure, reports what is wrong


class _OtherChain(Exception):
    """The chain does not begin with the delegates that the daemon had executed."""


def _go_on(environment: Environment, conf: NetConf, executed: "list[daemon.ExecutedDelegate | None]") -> bytes | None:
    """Run the rest of a chain of which these delegates have been executed.

    Raises:
        _OtherChain: the daemon's chain was another, and nothing was run now. CniError: as the chain.
    """
    steps = _steps(environment.command, conf)
    try:
        step = next(steps)
        for position, done in enumerate(executed):
            if done is None or not _is_of(done, step, environment):
                raise _OtherChain
            try:
                step = steps.send(chain.ExecOutput(done.status, done.stdout, done.stderr))
            except (StopIteration, CniError):
                if position < len(executed) - 1:
                    raise _OtherChain from None
                raise
        return _drive_from(step, steps, environment, conf)
    except StopIteration as stop:
        result: bytes | None = stop.value
        return result


def _is_of(done: "daemon.ExecutedDelegate", step: chain.Exec, environment: Environment) -> bool:
    plugin, environ, stdin = frames.parse_blobs(done.blobs, 3)
    if (plugin, stdin) != (step.plugin.encode(), step.stdin):
        return False
    return frames.parse_environ(environ) == {**environment.raw, **step.environ()}


def has_rails(environment: Environment, conf: NetConf) -> bool:
    """Return whether kubelet gave this pod a device of ours: by the device plugin, or by a claim.

    A sandbox that is no Kubernetes pod has none.

    Raises:
        CniError: code 11, it is unknown.
    """
    if not environment.pod_name() and not environment.pod_uid():
        return False
    return _has_devices(environment.pod_uid(), conf) or _has_claims(environment.pod_uid(), conf)


def _has_devices(uid: str, conf: NetConf) -> bool:
    """Return whether kubelet's checkpoint gives this pod a device of ours.

    If the checkpoint is missing in kubelet's folder, kubelet never gave a device to a pod: kubelet writes the file before
    the first such pod's sandbox exists. If its format is unknown, a pod whose
    UID is not in it has none, and no pod has one if no resource of ours is in it (docs/decisions/0044).

    Raises:
        CniError: code 11, it is unknown.
    """
    resources, raw = frozenset(conf.resources), checkpoint_bytes(conf)
    if raw is None:
        return False
    try:
        entries = checkpoint.parse(raw)
        if not uid and any(resource in pod for pod in entries.values() for resource in resources):
            raise _unknown(_NO_UID)
        return bool(checkpoint.devices(entries, uid, resources))
    except ValueError as error:
        if checkpoint.surely_names_none(raw, uid, resources):
            return False
        raise _unknown(f"kubelet's checkpoint in {conf.device_plugins} cannot be read: {error}") from None


def _has_claims(uid: str, conf: NetConf) -> bool:
    """Return whether a claim of this pod has a device of ours, in kubelet's `dra_manager_state`: the rules are those for the checkpoint.

    And where the daemon has recorded no claim, no pod has one, whatever the file is: a claim is recorded before its pod's sandbox is made.

    Raises:
        CniError: code 11, it is unknown.
    """
    try:
        return _is_named(uid, conf)
    except CniError:
        if _claims_are_recorded():
            raise
        return False


def _claims_are_recorded() -> bool:
    try:
        return bool(posix.listdir(_RECORDED_CLAIMS))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _is_named(uid: str, conf: NetConf) -> bool:
    """Return whether kubelet's `dra_manager_state` has a device of ours for this pod.

    Raises:
        CniError: code 11, it is unknown.
    """
    raw = claims_bytes(conf)
    if raw is None:
        return False
    try:
        claims = dra_manager_state.parse(raw, DRIVER)
        if claims and not uid:
            raise _unknown(_NO_UID)
        return bool(dra_manager_state.of_pod(claims, uid))
    except ValueError as error:
        if dra_manager_state.surely_names_none(raw, uid, DRIVER):
            return False
        raise _unknown(f"{error} ({conf.kubelet})") from None


def checkpoint_bytes(conf: NetConf) -> bytes | None:
    """Read kubelet's checkpoint; None if kubelet never gave a device to a pod.

    If the configured folder is absent, that of every kubelet is looked at. Kubelet makes it when it starts, and refuses a pod with a device if
    it cannot write the checkpoint (pkg/kubelet/cm/devicemanager/manager.go). So if neither folder is there, no pod has a device.

    Raises:
        CniError: code 11, it cannot be read.
    """
    folders = conf.device_plugins, DEFAULT_DEVICE_PLUGINS
    return _first(folders, "kubelet_internal_checkpoint", "kubelet's checkpoint")


def claims_bytes(conf: NetConf) -> bytes | None:
    """Read kubelet's `dra_manager_state`; None if kubelet has no such file and no claim is recorded, so no pod has a claim.

    If the root folder of the configuration is absent, kubelet's default is looked at. A kubelet of Kubernetes 1.26 or later makes the file
    when it starts.

    Raises:
        CniError: code 11, it cannot be read; or it is not there and a claim is recorded: then kubelet has it somewhere else.
    """
    raw = _first((conf.kubelet, DEFAULT_KUBELET), dra_manager_state.NAME, f"kubelet's {dra_manager_state.NAME}")
    if raw is None and _claims_are_recorded():
        raise _unknown(f"kubelet has prepared claims, and {conf.kubelet} has no {dra_manager_state.NAME}")
    return raw


def _first(folders: tuple[str, ...], name: str, title: str) -> bytes | None:
    """Read a file in the first of these folders that exists; None if it is not there."""
    for folder in folders:
        try:
            return _read(f"{folder}/{name}")
        except FileNotFoundError:
            if posix.access(folder, posix.F_OK):
                return None
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise _unknown(f"{title} in {folder} cannot be read: {error}") from None
    return None


def _unknown(why: str) -> CniError:
    message = (
        f"Railnet's daemon does not answer, and without it, it is unknown whether this pod asked for a rail: {why}"
    )
    return CniError(TRY_AGAIN, message)


def _wait_for_daemon(
    environment: Environment, stdin: bytes, netns_fd: int, held: Lock, give_up: float, conf: NetConf
) -> tuple[int, bytes]:
    why = "no time to wait"
    while (left := give_up - time.monotonic()) > 0:
        try:
            return daemon.ask(environment, stdin, netns_fd, held, left)
        except daemon.RequestTooLarge as error:
            raise CniError(DECODE, f"this pod asked for {_what(conf)}, and {error}: shorten its annotations") from None
        except daemon.NoDaemon as error:
            why = str(error)
            time.sleep(min(_RETRY_SECONDS, left))
    message = (
        f"this pod asked for {_what(conf)}, and Railnet's daemon did not answer within {conf.seconds['daemon']:g} s"
    )
    raise CniError(
        TRY_AGAIN, message, f"{why}; look at the railnet DaemonSet's pod on this node, kubelet tries again by itself"
    )


def _what(conf: NetConf) -> str:
    return f"{', '.join(conf.resources)} or a claim of {DRIVER}"


def _run_chain(environment: Environment, conf: NetConf) -> bytes:
    return _drive(_steps(environment.command, conf), environment, conf) or b""


def _steps(command: str, conf: NetConf) -> "Generator[chain.Exec, chain.ExecOutput, bytes | None]":
    if command == STATUS:
        primary = chain.without(status.available(conf.primary, conf.version), conf.omit)
        _check_that_pods_are_known(conf)
        return chain.status(primary)
    primary = _primary(command, conf)
    if command == ADD:
        return chain.add(primary, conf.runtime_config)
    if command == GC:
        return chain.collect(primary, conf.attachments)
    verb = chain.check if command == CHECK else chain.delete
    return verb(primary, conf.runtime_config, conf.prev_result)


def _primary(command: str, conf: NetConf) -> chain.Primary:
    primary = chain.load(conf.primary, conf.version)
    look = command == ADD and appended_plugins.may_repeat(primary, conf.omit)
    return appended_plugins.run_once(primary, conf.omit, appended_plugins.on_host(conf.conflist) if look else None)


def _check_that_pods_are_known(conf: NetConf) -> None:
    """Make sure that the ADD of a pod without a rail may work: by kubelet's two files, else by the daemon, which asks kubelet.

    Raises:
        CniError: code 50, neither is there.
    """
    try:
        checkpoint_bytes(conf)
        claims_bytes(conf)
    except CniError as error:
        if not daemon.listens():
            raise CniError(NOT_AVAILABLE, str(error)) from None


def _drive(
    steps: "Generator[chain.Exec, chain.ExecOutput, bytes | None]", environment: Environment, conf: NetConf
) -> bytes | None:
    """Run what the chain yields."""
    try:
        return _drive_from(next(steps), steps, environment, conf)
    except StopIteration as stop:
        result: bytes | None = stop.value
        return result


def _drive_from(
    step: chain.Exec,
    steps: "Generator[chain.Exec, chain.ExecOutput, bytes | None]",
    environment: Environment,
    conf: NetConf,
) -> bytes | None:
    """Run this step, and what the chain yields after it."""
    try:
        while True:
            step = steps.send(_run(step, environment, conf.seconds["delegate"]))
    except StopIteration as stop:
        result: bytes | None = stop.value
        return result


def _run(step: chain.Exec, environment: Environment, seconds: float) -> chain.ExecOutput:
    try:
        executable = find(step.plugin, environment.path)
        delegate = Delegate(executable, {**environment.for_delegate(step.command), **step.environ()}, step.stdin)
    except OSError as error:
        return chain.ExecOutput(-(error.errno or 1), b"", str(error).encode())
    in_time = delegate.wait(time.monotonic() + seconds)
    status = delegate.end()
    return chain.ExecOutput(status if in_time else chain.TIMED_OUT, bytes(delegate.stdout), bytes(delegate.stderr))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # pathlib takes longer to import than this module may
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES} bytes")
    return content
