"""A cell to its build context: pure functions of frozen values."""
