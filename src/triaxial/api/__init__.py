"""The commands as functions: each takes plain values and returns what the command prints."""
