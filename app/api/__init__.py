"""HTTP: one file a resource. Translates requests to engine calls and back, and does nothing else."""
