"""First contact with a store: what is in it, what a sweep would remove, who is in the way, and what to run."""
