"""Backups: a consistent copy of a data folder made while it serves, and its way back."""
