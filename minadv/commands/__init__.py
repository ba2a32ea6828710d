"""The commands of the command line, one module a group; `minadv.cli` has the options."""
