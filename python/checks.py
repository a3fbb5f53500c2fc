"""What the tests assert."""


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


def true(fact, what):
    if not fact:
        raise AssertionError(what)
