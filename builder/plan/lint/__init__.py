"""What users add to an image, read before it is built: Dockerfiles, snippets, requirements."""

from builder.plan.lint.dockerfile import Instruction, buildkit_features, instructions
from builder.plan.lint.files import lint
from builder.plan.lint.model import Builder, Finding

__all__ = ["Builder", "Finding", "Instruction", "buildkit_features", "instructions", "lint"]
