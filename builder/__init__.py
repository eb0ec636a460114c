"""Container images of PyTorch on AMD ROCm: from a matrix to tested, published digests."""

__version__ = "0.1.0"
