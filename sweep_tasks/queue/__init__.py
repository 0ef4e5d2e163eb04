"""The sweep queue: every write is announced here before it is made, so that a sweep need not search for it."""
