"""Figures and pages from plain values; knows no axis and no store."""
