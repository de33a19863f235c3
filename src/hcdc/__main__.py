"""``python -m hcdc`` is the command ``hcdc``."""

from hcdc.cli import main

if __name__ == "__main__":
    main()
