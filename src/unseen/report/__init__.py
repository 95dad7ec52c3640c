"""Tables, figures and pages from the records of runs. Imports no torch."""
