"""`python -m isthmus` is the `isthmus` command."""

from isthmus.cli.main import main

if __name__ == "__main__":
    main()
