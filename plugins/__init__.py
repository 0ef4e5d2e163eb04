"""The registration of the page."""
