"""The daemon as a DRA driver: its composition, the node's ResourceSlices, and the file that a container finds."""
