"""MERGE: minimal expression replacement (arXiv 2510.24295), the replacement axis."""
