"""Where the plugin executable is on a host. The daemon knows the place without what installs there."""

EXECUTABLE = "/opt/cni/bin/railnet"
