"""Reading what is left of a damaged data folder: rows by SQLite in children, blocks without LMDB."""
