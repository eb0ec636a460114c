"""CI pipelines made from the matrix: what runs on which machine, in chunks that a CI takes."""
