"""The sweep: how far it may go, what goes, and how it is done."""
