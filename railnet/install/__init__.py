"""What is put on a host and taken away from it: the plugin executable with an interpreter of its own."""
