"""`python -m unseen`: the command line."""

from unseen.cli import main

main()
