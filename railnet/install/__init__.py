"""Puts Railnet on a host and takes it away again: the plugin executable with an interpreter of its own."""
