"""What everything else stands on: checks, trees, initial weights, random streams, files, launchers, errors."""
