"""hcdc makes a data set small enough to search on."""

from hcdc.core.errors import HcdcError, InputError, NumericalError
from hcdc.core.recipe import Recipe

__all__ = ["HcdcError", "InputError", "NumericalError", "Recipe"]
