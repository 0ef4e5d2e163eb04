"""What is claimed about speed. Each module has a `measure()` that returns plain numbers; ratios compare two things
measured alternately in one run, since the machine's own speed changes from minute to minute."""
