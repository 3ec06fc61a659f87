"""Runs the command line, as `rubric-integrations` and as `python -m rubric_integrations`."""

import _thread
import atexit
import os
import signal
import sys
import time

_INTERRUPTED = 130
# The seconds in which a second Ctrl-C counts as the first one, for example because the key was hit twice.
_DOUBLE_PRESS = 1.0


class _Interrupts:
    """Raises `KeyboardInterrupt` on Ctrl-C, but once for a double press."""

    def __init__(self) -> None:
        self._last = -_DOUBLE_PRESS
        self.were_raised = False

    def __call__(self, _number: int, _frame: object) -> None:
        self.were_raised = True
        is_repeated, self._last = time.monotonic() - self._last < _DOUBLE_PRESS, time.monotonic()
        if not is_repeated:
            raise KeyboardInterrupt

    def repeat_lost(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Interrupt again if the exception was raised where Python drops it, such as in a callback of an import."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)
            return
        self._last = -_DOUBLE_PRESS
        _thread.interrupt_main()


def run() -> None:
    """Run the command line. Ctrl-C ends it with exit code 130 and without a traceback, whenever it is pressed.

    A second Ctrl-C within a second is ignored, because it would interrupt what the first one still writes.
    """
    # A shell that starts a command in the background lets it ignore Ctrl-C.
    interrupts, is_default = _Interrupts(), signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        sys.unraisablehook = interrupts.repeat_lost
        signal.signal(signal.SIGINT, interrupts)
        # Python removes other handlers at its end, and Ctrl-C would change the exit code.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        from rubric_integrations.cli import main

        main()
    except (KeyboardInterrupt, Exception) as error:
        # An import may raise another exception because of the interrupt.
        if isinstance(error, KeyboardInterrupt) or interrupts.were_raised:
            sys.exit(_INTERRUPTED)
        raise
    finally:
        if is_default:
            # Python may still wait for threads.
            signal.signal(signal.SIGINT, _exit)


def _exit(_number: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
