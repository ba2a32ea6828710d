"""The version of minadv, in a file that imports nothing: logs, the command line and the build read it here."""

__version__ = "0.2.0"
