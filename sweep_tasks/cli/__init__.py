"""The `sweepflow` command: the same library in a terminal."""
