"""Every method against every other, by one protocol for all tasks (docs/protocol.md)."""
