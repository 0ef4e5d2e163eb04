"""The scenario language: operations as JSON lines, one outcome a line, to see a rule at work."""
