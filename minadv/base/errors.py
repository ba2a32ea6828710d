r"""The one error of the data loaders, and their one warning."""


class DataError(ValueError):
    """Data that is missing or wrong; the message is one line that names the file and says what was expected of it."""


class DataWarning(UserWarning):
    """Data that can be used, although part of what was expected is missing."""
