"""Which GPUs this torch can serve, read from its files: no GPU, no HIP and no import of torch."""
