"""Metadata in SQL: namespaces, the radix tree, states and what they own. All SQL of the service."""
