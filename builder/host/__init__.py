"""The machine we run on: a snapshot of its devices, and what a container needs of them."""
