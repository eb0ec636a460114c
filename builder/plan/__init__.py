"""What is stale and why, and the bake file that would mend it. Pure."""
