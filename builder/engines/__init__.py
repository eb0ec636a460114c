"""The outside world: one adapter a tool."""
