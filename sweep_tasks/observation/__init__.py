"""What an operator sees: how far everything is, what holds it up, what runs did, and why a version is still there."""
