"""The command ``halograph``: the command line of the binary, in this process."""

from __future__ import annotations

import os
import shutil
import signal
import sys


def main() -> None:
    """Runs the command line and exits with its code."""
    from ._halograph import run_command

    # As in the binary: Ctrl-C ends the process unless the command handles it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    name = os.path.basename(sys.argv[0])
    is_on_path = shutil.which(name) == sys.argv[0] or name == "__main__.py"
    program = "halograph" if is_on_path else sys.argv[0]
    sys.exit(run_command([program, *sys.argv[1:]], [sys.executable, "-m", "halograph"]))


if __name__ == "__main__":
    main()
