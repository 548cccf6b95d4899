"""Autotune at work in this process: who tunes, the thread that does, and what it may change."""
