"""Data sets: the generated `mini_digits`, readers of published formats, download and cache."""
