"""Datasets: the embedded `mini_digits` and readers for the real benchmarks."""
