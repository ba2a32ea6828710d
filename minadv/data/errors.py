r"""The one error of the loaders."""


class DataError(ValueError):
    """Data that is missing or wrong; the message is one line that names the file and says what was expected of it."""
