"""What dead sandboxes left of rails: which records are stale, what follows from that, and how a lost record is rebuilt."""
