"""Every order in which a few processes can make their calls to a store, run with the real code, and one model."""
