"""The one error a user is meant to see: a sentence, no traceback, exit code 2."""


class UserError(Exception):
    """Bad input. The message is one sentence with the offending value and what to do about it."""
