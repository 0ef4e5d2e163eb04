"""The sweep queue: every write is recorded here first, so that a sweep finds it without scanning tables."""
