"""`python -m intertwine` is the command `intertwine`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:  # -m puts the working directory first, and what lies there is not ours to run
        del sys.path[0]
    from intertwine.cli import main

    sys.exit(main())
