"""Other recipes than tasks propose, for tests that take a moment."""


def change_recipes(patch, make):
    """Let tasks call ``make`` in place of `Recipe`."""
    for module in ("_base", "_image"):
        patch.setattr(f"hcdc.tasks.{module}.Recipe", make)
