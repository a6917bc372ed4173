"""Benchmarks: the real server, side by side with what the machine can do, in one run."""
