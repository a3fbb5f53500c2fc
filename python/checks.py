"""What the checks of `cargo xtask test` in Python share: how they are gathered and counted, and what they assert."""

import contextlib
import traceback


class Checks:
    """The checks of one step, in the order in which they are written; used as a decorator."""

    def __init__(self, step):
        self.step, self.functions = step, []
        self.passed = self.failed = 0

    def __call__(self, function):
        self.functions.append(function)
        return function

    @contextlib.contextmanager
    def trying(self, function):
        """Counts what happens inside as this check."""
        try:
            yield
            self.passed += 1
        except Exception:  # whatever goes wrong in a check is that check's failure
            self.failed += 1
            print(f"{function.__name__}:\n{traceback.format_exc()}", flush=True)

    def close(self):
        """Prints the line that the step is counted by, and returns the exit code."""
        print(f"{self.step}: {self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


def true(fact, what):
    if not fact:
        raise AssertionError(what)
