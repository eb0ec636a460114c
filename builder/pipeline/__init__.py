"""The steps, one a file; only here are adapters put to work."""
