"""Rails that sandboxes left behind: which records are stale and what is done about them, and how a lost record is rebuilt."""
