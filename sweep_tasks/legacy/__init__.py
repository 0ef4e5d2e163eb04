"""Sweeping a table by scanning it: for data that no queue knows of, and as the yardstick of the targeted sweep."""
