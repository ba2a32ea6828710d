r"""Errors that several folders know: of data, with a warning, and of numbers that are not finite."""


class DataError(ValueError):
    """Data that is missing or wrong; the message is one line that names the file and says what was expected of it."""


class NotFiniteError(ValueError):
    """A number is not finite where only finite ones make sense; the message names what, and the example."""


class DataWarning(UserWarning):
    """Data that can be used, although part of what was expected is missing."""
