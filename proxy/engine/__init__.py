"""The pure engine: what a session has shown, and whether a resume continues it. No I/O, no clock."""
