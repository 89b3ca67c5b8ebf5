"""What a node has, what must hold of a node, and what two snapshots of a machine differ in."""
