import pytest

from hcdc.core.errors import InputError
from hcdc.spaces import Box, from_spec, register


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="'box' is registered already: Box"):

        @register
        class Other(Box):
            pass


def test_an_unknown_space_names_the_nearest():
    with pytest.raises(InputError, match="space 'boxx' is not known; did you mean 'box'"):
        from_spec({"name": "boxx"})


@pytest.mark.parametrize("spec", [{}, {"name": 3}])
def test_a_specification_without_a_name(spec):
    with pytest.raises(InputError, match="needs a text 'name'"):
        from_spec(spec)


@pytest.mark.parametrize("settings", [{}, {"names": ["a"], "low": 0, "high": 1, "colour": 2}])
def test_settings_that_do_not_fit(settings):
    with pytest.raises(InputError, match="specification of space 'box' does not fit it"):
        from_spec({"name": "box", **settings})
