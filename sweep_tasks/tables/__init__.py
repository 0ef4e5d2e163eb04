"""The tables of a store: the catalog, pauses, and what was written to and deleted from each."""
