"""Statehold, the service: an exact-state prefix cache for LLM serving."""

VERSION = "0.1.0"
