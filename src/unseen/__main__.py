"""`python -m unseen`: the command line."""

from unseen.cli import main

if __name__ == "__main__":
    main()
