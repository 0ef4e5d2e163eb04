"""Alerts: what they say, the channels they are sent by, and delivering each once."""
