"""Temporal generalisation (Mind the Gap, Lazaridou et al. 2021), the time axis."""
