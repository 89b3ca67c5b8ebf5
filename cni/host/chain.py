"""The node's own primary plugins, run as libcni would run them.

Each function is a generator: it yields what to execute and takes what came of it, so the daemon (which has the
executable run it) and the slow lane (which runs it itself) drive the same code.
"""

from cni.host.errors import CONFIGURATION, DELEGATE_BROKE, DELEGATE_TIMED_OUT, CniError, DelegateError
from cni.host.netconf import load_object

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from collections.abc import Generator

    from cni.host.netconf import JsonObject

OURSELVES = "railnet"
TIMED_OUT = -110  # -ETIMEDOUT in place of a wait status: it was ended at its deadline


class Exec:
    """Run plugin `plugin` (a type, looked up in CNI_PATH) for `command` with `stdin`."""

    __slots__ = ("command", "plugin", "stdin")

    def __init__(self, plugin: str, command: str, stdin: bytes) -> None:
        """Trust the arguments; `parse` has checked them."""
        self.plugin = plugin
        self.command = command
        self.stdin = stdin


class Output:
    """What came of an `Exec`: a wait status (-errno where it was never executed, or `TIMED_OUT`) and two streams."""

    __slots__ = ("status", "stderr", "stdout")

    def __init__(self, status: int, stdout: bytes, stderr: bytes) -> None:
        """Hold three values."""
        self.status = status
        self.stdout = stdout
        self.stderr = stderr


class Primary:
    """A parsed primary configuration: the network's name, its CNI version and its plugins in order."""

    __slots__ = ("name", "plugins", "version")

    def __init__(self, name: str, version: str, plugins: "list[JsonObject]") -> None:
        """Trust the arguments; `parse` has checked them."""
        self.name = name
        self.version = version
        self.plugins = plugins


def parse(raw: bytes, path: str) -> Primary:
    """Read a primary configuration, a list of plugins or a single one.

    Raises:
        CniError: code 7, it is broken, or names Railnet itself.
    """
    conf = load_object(raw, f"the primary configuration {path}", CONFIGURATION)
    plugins = conf.get("plugins", [conf])
    if not isinstance(plugins, list) or not plugins or not all(isinstance(plugin, dict) for plugin in plugins):
        raise CniError(CONFIGURATION, f"'plugins' in {path} should be a list of at least one plugin")
    for plugin in plugins:
        kind = plugin.get("type")
        if not isinstance(kind, str) or not kind or not _is_file_name(kind):
            raise CniError(
                CONFIGURATION, f"a plugin in {path} has the type {kind!r}; it should be a file name in CNI_PATH"
            )
        if not isinstance(plugin.get("capabilities") or {}, dict):
            raise CniError(CONFIGURATION, f"'capabilities' of plugin {kind!r} in {path} should be an object")
        if OURSELVES in (kind, _delegate(plugin)):
            raise CniError(CONFIGURATION, f"{path} names Railnet itself; 'primary' should be the node's other network")
    return Primary(str(conf.get("name", "")), _at_most_1_0_0(str(conf.get("cniVersion", "0.1.0"))), plugins)


def _is_file_name(kind: str) -> bool:
    return not kind.startswith(".") and "/" not in kind and "\0" not in kind


def _delegate(plugin: "JsonObject") -> object:
    """Give the type that a plugin like flannel executes in turn, if it names one."""
    delegate = plugin.get("delegate")
    return delegate.get("type") if isinstance(delegate, dict) else None


def load(path: str) -> Primary:
    """Read a primary configuration from the host's disk.

    Raises:
        CniError: code 7, it is missing, unreadable, broken, or names Railnet itself.
    """
    try:
        with open(path, "rb") as file:  # pathlib takes longer to import than this module may
            raw = file.read()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or error
        raise CniError(CONFIGURATION, f"the primary configuration {path} cannot be read: {why}") from None
    return parse(raw, path)


def _port_mappings_absent(conf: "JsonObject") -> bool:
    return "prevResult" in conf and not (conf.get("runtimeConfig") or {}).get("portMappings")


# Plugins that need not run: (type, condition on what it would get, why the result, the disk and DEL stay the same).
_OMISSIONS = (
    (
        "portmap",
        _port_mappings_absent,
        "without mappings its ADD prints prevResult and returns, and its DEL returns (plugins/meta/portmap/main.go, cmdAdd, cmdDel)",
    ),
)


def add(primary: Primary, runtime_config: "JsonObject") -> "Generator[Exec, Output, bytes]":
    """Run ADD through the chain; a failure undoes what ran. Yields `Exec`, takes `Output`, returns the last stdout.

    Raises:
        CniError: code 105 or 106, a delegate broke or took too long. DelegateError: it failed in its own words.
    """
    result = b""
    for position, plugin in enumerate(primary.plugins):
        previous = load_object(result, f"the result of the plugin before {plugin['type']!r}") if position else None
        conf = _plugin_conf(primary, plugin, runtime_config, previous)
        if _omitted(plugin, conf):
            continue
        try:
            result = _result(plugin["type"], (yield _exec(plugin, "ADD", conf)))
        except CniError:
            yield from _undo(primary, position, runtime_config)
            raise
    return result


def delete(
    primary: Primary, runtime_config: "JsonObject", prev_result: "JsonObject | None"
) -> "Generator[Exec, Output, None]":
    """Run DEL through the chain, last plugin first; goes on after a failure, then raises the first one.

    `prev_result` is what ADD answered, where the runtime told it. Yields `Exec`, takes `Output`.

    Raises:
        CniError: as for `add`.
    """
    # Before 0.4.0 there is no prevResult on DEL (CNI specification 0.4.0, "DEL").
    previous = prev_result if _version(primary.version) >= (0, 4, 0) else None
    failure = None
    for plugin in reversed(primary.plugins):
        conf = _plugin_conf(primary, plugin, runtime_config, previous)
        if plugin is not primary.plugins[0] and _omitted(plugin, {**conf, "prevResult": previous}):
            continue
        try:
            _succeeded(plugin["type"], (yield _exec(plugin, "DEL", conf)))
        except CniError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _undo(primary: Primary, position: int, runtime_config: "JsonObject") -> "Generator[Exec, Output, None]":
    """Take back an ADD that failed at `position`, that plugin included; what cannot be undone is the runtime's DEL's."""
    started = Primary(primary.name, primary.version, primary.plugins[: position + 1])
    try:
        yield from delete(started, runtime_config, None)
    except CniError:
        return


def _exec(plugin: "JsonObject", command: str, conf: "JsonObject") -> Exec:
    import json  # not built in: loaded only by who runs a chain

    return Exec(plugin["type"], command, json.dumps(conf).encode())


def _plugin_conf(
    primary: Primary, plugin: "JsonObject", runtime_config: "JsonObject", previous: "JsonObject | None"
) -> "JsonObject":
    """Derive what one plugin gets on stdin (CNI specification 1.1.0, section 3, "Deriving request configuration")."""
    conf = {**plugin, "name": primary.name, "cniVersion": primary.version}
    if previous is not None:
        conf["prevResult"] = previous
    declared = plugin.get("capabilities") or {}
    passed = {key: value for key, value in runtime_config.items() if declared.get(key)}
    if passed:
        conf["runtimeConfig"] = passed
    return conf


def _omitted(plugin: "JsonObject", conf: "JsonObject") -> bool:
    return any(plugin["type"] == kind and condition(conf) for kind, condition, _ in _OMISSIONS)


def _result(plugin: str, output: Output) -> bytes:
    _succeeded(plugin, output)
    try:
        load_object(output.stdout, f"what plugin {plugin!r} printed", DELEGATE_BROKE)
    except CniError as error:
        raise CniError(DELEGATE_BROKE, str(error), _excerpt(output.stdout)) from None
    return output.stdout


def _succeeded(plugin: str, output: Output) -> None:
    if output.status == 0:
        return
    if output.status == TIMED_OUT:
        message = f"plugin {plugin!r} took longer than its time limit and was ended"
        raise CniError(DELEGATE_TIMED_OUT, message, _excerpt(output.stderr))
    if output.status < 0:
        raise CniError(CONFIGURATION, f"plugin {plugin!r} cannot be executed", _excerpt(output.stderr))
    _raise_its_own(plugin, output)
    raise CniError(
        DELEGATE_BROKE, f"plugin {plugin!r} {_ending(output.status)}", _excerpt(output.stderr or output.stdout)
    )


def _raise_its_own(plugin: str, output: Output) -> None:
    try:
        error = load_object(output.stdout, "an error")
    except CniError:
        return
    if type(error.get("code")) is int and isinstance(error.get("msg"), str):
        raise DelegateError(plugin, error["code"], error["msg"], output.stdout)


def _ending(status: int) -> str:
    signal = status & 0x7F  # WTERMSIG and WEXITSTATUS, bits/waitstatus.h
    return f"was ended by signal {signal}" if signal else f"failed with status {status >> 8} and no CNI error"


def _excerpt(output: bytes) -> str:
    return output[-2000:].decode("utf-8", "backslashreplace").strip()


def _at_most_1_0_0(version: str) -> str:
    """Cap the version a chain is run with: Railnet's own configuration says no more, so no runtime expects more."""
    return version if _version(version) <= (1, 0, 0) else "1.0.0"


def _version(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    # Python refuses to read a number of thousands of digits; a version has none of more than a few.
    return tuple(int(part[:9]) for part in parts) if all(part.isdecimal() for part in parts) else ()
