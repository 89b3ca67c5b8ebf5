"""The command line, and the composition of the node daemon from its parts."""

VERSION = "0.5.1"
