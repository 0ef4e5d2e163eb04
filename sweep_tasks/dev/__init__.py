"""For developers and for a first look: real servers on this machine, without containers."""
