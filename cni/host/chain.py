"""Run the plugins of the primary network as libcni would run them.

Each verb is a generator: it yields an `Exec` and is sent the `ExecOutput`. So the daemon, which has the executable run plugins, and
the slow lane, which runs them itself, use the same code.
"""

from cni.host import multus_circle, plugin_configuration_folder
from cni.host.errors import CONFIGURATION, DELEGATE_BROKE, TRY_AGAIN, CniError, DelegateError, NotExecuted, TimedOut
from cni.host.json_object import load_object
from cni.host.json_text import dumps
from cni.host.multus_circle import LeadsBack
from cni.host.result_version_conversion import CHECK_SINCE, STATUS_AND_GC_SINCE, chosen, number, result_in

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from cni.host.json_object import JsonObject
    from cni.host.plugin_configuration_folder import PluginFiles, ReadFolder

OURSELVES = "railnet"
NEWEST_WITHOUT_LISTS = "1.0.0"  # a libcni that does not know `cniVersions` knows no newer version, either
_TRY_AGAIN = -11  # -EAGAIN: no process can be made now, or delegates of an earlier request still run
TIMED_OUT = -110  # -ETIMEDOUT in place of a wait status: the plugin was killed at its deadline


class Exec:
    """Run plugin `plugin` (a type, looked up in CNI_PATH) for `command` with `stdin`; "" is the request's own ifname."""

    __slots__ = ("command", "ifname", "plugin", "stdin")

    def __init__(self, plugin: str, command: str, stdin: bytes, ifname: str = "") -> None:
        """Trust the arguments; `parse` has checked them."""
        self.plugin = plugin
        self.command = command
        self.stdin = stdin
        self.ifname = ifname

    def environ(self) -> "dict[bytes, bytes]":
        """Return what differs from the request's own environment."""
        environ = {b"CNI_COMMAND": self.command.encode()}
        if self.ifname:
            environ[b"CNI_IFNAME"] = self.ifname.encode()
        if self.plugin in multus_circle.TYPES:
            environ[multus_circle.MARK] = b"1"
        return environ


class ExecOutput:
    """The outcome of an `Exec`: a wait status (-errno if the plugin was not executed, or `TIMED_OUT`) and two streams."""

    __slots__ = ("status", "stderr", "stdout")

    def __init__(self, status: int, stdout: bytes, stderr: bytes) -> None:
        """Hold three values."""
        self.status = status
        self.stdout = stdout
        self.stderr = stderr


class Primary:
    """A parsed primary configuration: the network's name, the CNI version it is run with, and its plugins in order.

    `disable_check`, `disable_gc`: the configuration asks for no CHECK or GC; a runtime that asks gets success.
    """

    __slots__ = ("disable_check", "disable_gc", "name", "plugins", "version")

    def __init__(
        self,
        name: str,
        version: str,
        plugins: "list[JsonObject]",
        disable_check: bool = False,
        disable_gc: bool = False,
    ) -> None:
        """Trust the arguments; `parse` has checked them."""
        self.disable_check = disable_check
        self.disable_gc = disable_gc
        self.name = name
        self.version = version
        self.plugins = plugins


def _no_folder(_: str) -> "PluginFiles":
    return []


def parse(raw: bytes, path: str, asked: str = NEWEST_WITHOUT_LISTS, read_folder: "ReadFolder" = _no_folder) -> Primary:
    """Read a primary configuration, a list of plugins or a single one, to be run at version `asked` at most.

    `read_folder` reads the network's folder of further plugins, if libcni would (`cni.host.plugin_configuration_folder`).

    Raises:
        CniError: code 7, it is broken, or names Railnet itself. OSError: as `read_folder`.
    """
    conf = load_object(raw, f"the primary configuration {path}", CONFIGURATION)
    folder = plugin_configuration_folder.of(conf, path)
    files = read_folder(folder) if folder is not None else []
    plugins = _inlined(conf, path, bool(files))
    for plugin in plugins:
        _check_plugin(plugin, path)
    for file, content in files:
        plugin = load_object(content, f"the plugin configuration {file}", CONFIGURATION)
        _check_plugin(plugin, file)
        plugins.append(plugin)
    listed = conf.get("cniVersions", [])
    if not isinstance(listed, list) or not all(isinstance(version, str) for version in listed):
        raise CniError(CONFIGURATION, f"'cniVersions' in {path} should be a list of versions")
    version = chosen(str(conf.get("cniVersion", "0.1.0")), listed, asked)
    disable_check, disable_gc = _is_set(conf, "disableCheck"), _is_set(conf, "disableGC")
    return Primary(str(conf.get("name", "")), version, plugins, disable_check, disable_gc)


def _inlined(conf: "JsonObject", path: str, may_be_absent: bool) -> "list[JsonObject]":
    """Return the plugins in the configuration itself. A list may have none if its folder has some."""
    if may_be_absent and "plugins" not in conf:
        return []
    plugins = conf.get("plugins", [conf])
    if not isinstance(plugins, list) or not plugins or not all(isinstance(plugin, dict) for plugin in plugins):
        raise CniError(CONFIGURATION, f"'plugins' in {path} should be a list of at least one plugin")
    return list(plugins)


def _check_plugin(plugin: "JsonObject", path: str) -> None:
    kind = plugin.get("type")
    if not isinstance(kind, str) or not plugin_configuration_folder.is_file_name(kind):
        raise CniError(CONFIGURATION, f"a plugin in {path} has the type {kind!r}; it should be a file name in CNI_PATH")
    if not isinstance(plugin.get("capabilities") or {}, dict):
        raise CniError(CONFIGURATION, f"'capabilities' of plugin {kind!r} in {path} should be an object")
    if OURSELVES in (kind, _delegate(plugin)):
        raise LeadsBack(f"{path} names Railnet itself; 'primary' should be the node's other network")
    multus_circle.refuse(plugin, path)


def _is_set(conf: "JsonObject", key: str) -> bool:
    return "plugins" in conf and plugin_configuration_folder.is_set(conf, key)  # only a list has such keys


def without(primary: Primary, omit: "Collection[str]") -> Primary:
    """Return the primary without the plugins of these types, which the runtime runs after Railnet. The first one always stays."""
    plugins = [plugin for position, plugin in enumerate(primary.plugins) if not position or plugin["type"] not in omit]
    return Primary(primary.name, primary.version, plugins, primary.disable_check, primary.disable_gc)


def _delegate(plugin: "JsonObject") -> object:
    """Return the type of the plugin that a plugin like flannel executes in turn; None if it names none."""
    delegate = plugin.get("delegate")
    return delegate.get("type") if isinstance(delegate, dict) else None


def load(path: str, asked: str = NEWEST_WITHOUT_LISTS) -> Primary:
    """Read a primary configuration from the host's disk, as `parse` does.

    Raises:
        CniError: code 7, it is missing, unreadable, broken, or names Railnet itself.
    """
    try:
        with open(path, "rb") as file:  # pathlib takes longer to import than this module may
            raw = file.read()
        return parse(raw, path, asked, plugin_configuration_folder.read)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise unreadable(path, error) from None


def unreadable(path: str, error: OSError | ValueError) -> CniError:
    """Return what a runtime is told of a primary configuration at `path` that cannot be read, or of a file of its folder."""
    file = getattr(error, "filename", None) or path
    about = path if file == path else f"{path}, whose plugin configuration {file}"
    return CniError(
        CONFIGURATION, f"the primary configuration {about} cannot be read: {getattr(error, 'strerror', None) or error}"
    )


def _port_mappings_absent(conf: "JsonObject") -> bool:
    runtime_config = conf.get("runtimeConfig")
    return "prevResult" in conf and not (isinstance(runtime_config, dict) and runtime_config.get("portMappings"))


# Plugins that need not run: (type, condition on their configuration, why the result, the disk and DEL stay the same).
_OMISSIONS = (
    (
        "portmap",
        _port_mappings_absent,
        "without mappings its ADD prints prevResult and returns, its CHECK and DEL return (plugins/meta/portmap/main.go)",
    ),
)


def add(primary: Primary, runtime_config: "JsonObject") -> "Generator[Exec, ExecOutput, bytes]":
    """Run ADD through the chain; after a failure, undo what ran. Yields `Exec`, takes `ExecOutput`, returns the last stdout.

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
            result = result_of(plugin["type"], (yield _exec(plugin, "ADD", conf)))
        except CniError as error:
            yield from _undo(primary, _to_undo(position, error), runtime_config)
            raise
    return result


def delete(
    primary: Primary, runtime_config: "JsonObject", prev_result: "JsonObject | None"
) -> "Generator[Exec, ExecOutput, None]":
    """Run DEL through the chain, last plugin first; go on after a failure, and raise the first one in the end.

    `prev_result` is the ADD's result if the runtime passed it. Yields `Exec`, takes `ExecOutput`.

    Raises:
        CniError: as for `add`.
    """
    previous = _previous(primary, prev_result)
    failure = None
    for plugin in reversed(primary.plugins):
        conf = _plugin_conf(primary, plugin, runtime_config, previous)
        if plugin is not primary.plugins[0] and _omitted(plugin, {**conf, "prevResult": previous}):
            continue
        try:
            check_success(plugin["type"], (yield _exec(plugin, "DEL", conf)))
        except CniError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def check(
    primary: Primary, runtime_config: "JsonObject", prev_result: "JsonObject | None"
) -> "Generator[Exec, ExecOutput, None]":
    """Run CHECK through the chain in the order of ADD, each plugin with ADD's last result; the first failure ends it.

    No plugin runs if the primary's version has no CHECK, or if it is disabled. Yields `Exec`, takes `ExecOutput`.

    Raises:
        CniError: as for `add`.
    """
    if not _has(primary, CHECK_SINCE) or primary.disable_check:
        return
    previous = _previous(primary, prev_result)
    for plugin in primary.plugins:
        conf = _plugin_conf(primary, plugin, runtime_config, previous)
        if not _omitted(plugin, conf):
            check_success(plugin["type"], (yield _exec(plugin, "CHECK", conf)))


def status(primary: Primary) -> "Generator[Exec, ExecOutput, None]":
    """Run STATUS through the chain if the primary's version has STATUS; the first failure ends it.

    Yields `Exec`, takes `ExecOutput`.

    Raises:
        CniError: as for `add`.
    """
    for plugin in primary.plugins if _has(primary, STATUS_AND_GC_SINCE) else ():
        check_success(plugin["type"], (yield _exec(plugin, "STATUS", _plugin_conf(primary, plugin, {}, None))))


def collect(primary: Primary, attachments: "JsonObject") -> "Generator[Exec, ExecOutput, None]":
    """Run GC through the chain if the primary's version has GC; go on after a failure, and raise the first one in the end.

    `attachments` is the runtime's list of valid attachments, under its key or keys. Yields `Exec`, takes `ExecOutput`.

    Raises:
        CniError: as for `add`.
    """
    failure = None
    for plugin in primary.plugins if _has(primary, STATUS_AND_GC_SINCE) and not primary.disable_gc else ():
        conf = {**_plugin_conf(primary, plugin, {}, None), **attachments}
        try:
            check_success(plugin["type"], (yield _exec(plugin, "GC", conf)))
        except CniError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _has(primary: Primary, since: "tuple[int, ...]") -> bool:
    return number(primary.version) >= since


def _previous(primary: Primary, prev_result: "JsonObject | None") -> "JsonObject | None":
    """Return the prevResult for DEL and CHECK, in the primary's version; None before version 0.4.0."""
    return None if prev_result is None or not _has(primary, CHECK_SINCE) else result_in(primary.version, prev_result)


def _to_undo(failed: int, error: CniError) -> int:
    """Return how many plugins a failed ADD undoes. The runtime's own DEL follows, and removes the rest.

    - The first plugin makes the interface, and refuses if the container has one already, which is an earlier ADD's: a DEL
      would remove that one.
    - A plugin that took too long would take as long again.
    - Any other plugin that failed may have done something.
    """
    made_nothing = failed == 0 and isinstance(error, DelegateError | NotExecuted)
    return failed if made_nothing or isinstance(error, TimedOut) else failed + 1


def _undo(primary: Primary, count: int, runtime_config: "JsonObject") -> "Generator[Exec, ExecOutput, None]":
    """Run DEL for the first `count` plugins; if a DEL fails, the runtime's own DEL tries again."""
    started = Primary(primary.name, primary.version, primary.plugins[:count])
    try:
        yield from delete(started, runtime_config, None)
    except CniError:
        return


def _exec(plugin: "JsonObject", command: str, conf: "JsonObject") -> Exec:
    return Exec(plugin["type"], command, dumps(conf).encode())


def _plugin_conf(
    primary: Primary, plugin: "JsonObject", runtime_config: "JsonObject", previous: "JsonObject | None"
) -> "JsonObject":
    """Derive the configuration that one plugin gets on stdin (CNI specification 1.1.0, section 3, "Deriving request configuration")."""
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


def result_of(plugin: str, output: ExecOutput) -> bytes:
    """Return what a plugin printed, which is a JSON object.

    Raises:
        CniError: the plugin's own error; 105, it printed no JSON object or died; 106, it took too long; 7, it cannot be executed.
    """
    check_success(plugin, output)
    try:
        load_object(output.stdout, f"what plugin {plugin!r} printed", DELEGATE_BROKE)
    except CniError as error:
        raise CniError(DELEGATE_BROKE, str(error), _excerpt(output.stdout)) from None
    return output.stdout


def check_success(plugin: str, output: ExecOutput) -> None:
    """Make sure that a plugin succeeded.

    Raises:
        CniError: as for `result_of`.
    """
    if output.status == 0:
        return
    if output.status == TIMED_OUT:
        raise TimedOut(plugin, _excerpt(output.stderr))
    if output.status < 0:
        code = TRY_AGAIN if output.status == _TRY_AGAIN else CONFIGURATION
        raise NotExecuted(code, f"plugin {plugin!r} cannot be executed", _excerpt(output.stderr))
    _raise_its_own(plugin, output)
    raise CniError(
        DELEGATE_BROKE, f"plugin {plugin!r} {_ending(output.status)}", _excerpt(output.stderr or output.stdout)
    )


def _raise_its_own(plugin: str, output: ExecOutput) -> None:
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
