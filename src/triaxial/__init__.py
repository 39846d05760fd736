"""triaxial: stress tests for language models on three axes, and the remedies measured."""

__version__ = "0.1.0"
