"""The operators' routes, one file a desk."""
