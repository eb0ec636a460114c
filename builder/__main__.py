"""``python -m builder`` is the same program as ``rocm-torch``."""

from builder.cli.main import main

if __name__ == "__main__":
    main()
