"""The models that the level ``bench`` runs: plain torch, one file a model, nothing downloaded.

Each module has a frozen ``Config`` whose defaults are the published model, a ``TINY`` one for
machines without a GPU, and ``build(config)``. Modules import torch and are imported only in the
process that runs them.
"""
