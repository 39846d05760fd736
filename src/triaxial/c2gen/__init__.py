"""Composition: does a model compose the inferences it learned, and still after learning more?"""
