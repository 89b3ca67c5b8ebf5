"""Take Railnet out of a folder of CNI configurations: the runtime goes on with the primary network, and with what others appended."""

import logging
import stat

from cni.host.errors import CniError
from railnet.daemon.conflist import conflist, foreign_plugins
from railnet.daemon.conflist.conflist import ConflistFolder
from railnet.install import conflists_without_railnet
from railnet.kernel.files import followed, read_below, sync, write_atomically

_log = logging.getLogger(__name__)


def remove(folder: ConflistFolder) -> None:
    """Remove Railnet's conflist, with copies of it that another tool has made: Cilium would put its `….cilium_bak` back some day.

    Plugins that other programs appended to Railnet's configuration go to the primary's, and come before the removal: no pod
    is made without them.

    Raises:
        OSError: the folder cannot be written.
    """
    _complete_primary(folder)
    for path in conflist.copies(folder):
        path.unlink()
        sync(path.parent)
        _log.info("%s is removed", folder.file(path.name))
    take_out_of_copies(folder)


def take_out_of_copies(folder: ConflistFolder) -> None:
    """Have the primary's plugins in the place of Railnet's in files of other programs that copy Railnet's conflist."""
    for name, copy in conflist.files_beside_railnet(folder):
        path = folder.file(name)
        try:
            primary = str(conflists_without_railnet.own_plugin(copy).get("primary"))
            content = conflists_without_railnet.without_railnet(copy, read_below(folder.root, primary), primary)
            _replace(folder, path, content)
        except (OSError, ValueError, CniError) as error:
            _log.warning(
                "%s calls Railnet, which leaves this node: %s; remove the file, and start its program again",
                path,
                error,
            )


def _complete_primary(folder: ConflistFolder) -> None:
    """Have the plugins that Railnet's conflist alone has run without Railnet. A mesh's copy of the conflist has them, too.

    What fails is logged: a node must be able to lose Railnet.
    """
    primary = conflist.named_primary(folder)
    foreign = foreign_plugins.parse(conflist.read(folder) or b"")
    if primary is None or foreign is None or conflist.files_beside_railnet(folder):
        return
    try:
        content = conflists_without_railnet.primary_alone(read_below(folder.root, primary), primary, foreign)
        if content is not None:
            _replace(folder, primary, content)
    except (OSError, ValueError, CniError) as error:
        _log.warning(
            "plugins that other programs appended to Railnet's configuration (%s) are not in the primary's: %s; start their installers again",
            ", ".join(plugin["type"] for plugin in foreign.plugins) or "none",
            error,
        )


def _replace(folder: ConflistFolder, path: str, content: bytes) -> None:
    """Replace a file of the host. A link to another file stays."""
    file = followed(folder.root, path)
    write_atomically(file, content, stat.S_IMODE(file.stat().st_mode), durable=True)
    _log.info("%s runs the plugins that other programs had appended to Railnet's configuration", path)
