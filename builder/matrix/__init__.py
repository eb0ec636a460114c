"""From matrix.yaml to cells: schema, expansion, rules with reasons, tags and selection."""
