"""The demo: a store with six hours of history of a shop, a sweep of it, and a report of what was removed and kept."""
