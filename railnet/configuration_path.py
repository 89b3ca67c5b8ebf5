"""Where the node's configuration is unless the command line names another file. Commands that read none import this alone."""

from pathlib import Path

DEFAULT_PATH = Path("/etc/railnet/node.yaml")
