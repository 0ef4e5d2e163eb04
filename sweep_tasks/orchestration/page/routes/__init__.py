"""A router for each noun of the page."""
