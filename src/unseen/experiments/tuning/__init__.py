"""Search for settings with Optuna, on synthetic shifts of the source."""
