r"""Ctrl-C while the command line imports its modules: it ends at once with code 130 and without a word.

That takes a good part of a second, within which an exception would be shown with all its calls, or become another one:
NumPy tells of a broken installation. So `minadv` imports this file before all others; it does something in the process
of a command alone, until `over` is called. It imports little itself.
"""

import os
import signal
import sys


def over() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt, as usual."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os._exit(130)


def _is_command() -> bool:
    """Whether this process is ``minadv ...`` or ``python -m minadv ...``, and nobody has chosen what Ctrl-C does."""
    program = os.path.basename((sys.argv or [""])[0]).removesuffix(".exe")
    named = program == "minadv" or (program == "-m" and "minadv" in sys.orig_argv)
    return named and signal.getsignal(signal.SIGINT) is signal.default_int_handler


if _is_command():
    signal.signal(signal.SIGINT, _end)
