"""A store to look at: a shop with six hours of history, swept, and what was gained and is still kept."""
