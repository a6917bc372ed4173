"""Blocks: content-addressed bytes in LMDB and their stored format."""
