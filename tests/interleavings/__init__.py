"""Every order in which a few processes can make their calls to a store, tried with the real code."""
