"""``python -m robogen`` is the command line."""

from robogen.cli import main

main()
