"""`python -m unseen.cli`."""

from unseen.cli import main

if __name__ == "__main__":
    main()
