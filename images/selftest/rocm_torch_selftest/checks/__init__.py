"""The checks, one a file; the table in ``rocm_torch_selftest.table`` says which exist."""
