"""The judge of a node after faults: the state of a node, the invariants that it must satisfy, and snapshots of the whole machine."""
