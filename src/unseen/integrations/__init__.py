"""Other libraries: one file each. Import the file that you need; each needs an extra."""
