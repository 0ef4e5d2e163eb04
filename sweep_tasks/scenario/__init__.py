"""The scenario language: operations as JSON lines, with one outcome per line, to try out the rules."""
