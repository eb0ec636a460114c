"""A stand-in for torch in stand-ins for AMD's images: it has a version, and computes nothing."""

import importlib

# Written beside this when the stand-in is put into an image.
version = importlib.import_module("torch.version")
__version__ = version.__version__


class cuda:  # noqa: N801 - the name that torch's users know
    """No GPU is seen."""

    @staticmethod
    def is_available() -> bool:
        """Return that there is none."""
        return False
