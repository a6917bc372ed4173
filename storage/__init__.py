"""What lasts: metadata in SQL, blocks in LMDB, and the one order that joins them.

This package knows no HTTP and no policy. `store.py` is its front door.
"""
