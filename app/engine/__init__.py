"""The cache itself, in the words of the domain. Knows no HTTP, no SQL text and no LMDB."""
