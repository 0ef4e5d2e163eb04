"""Time: fresh timestamps, the wall-clock map, open transactions, and how far has been swept."""
