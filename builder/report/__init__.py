"""What a run leaves behind and shows: records, tables, progress, SBOM documents."""
