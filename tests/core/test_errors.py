import pytest

from hcdc.core.errors import HcdcError, InputError, NumericalError, require, unknown_name


@pytest.mark.parametrize(
    ("given", "nearest"), [("coar", "cora"), ("CORA", "cora"), ("pubmd", "PubMed"), ("pubmed", "PubMed")]
)
def test_unknown_name_says_the_nearest_match_and_all_choices(given, nearest):
    error = unknown_name("--dataset", given, ["cora", "citeseer", "PubMed"])
    assert isinstance(error, InputError)
    assert (
        str(error) == f"--dataset '{given}' is not known; did you mean '{nearest}'? "
        "choose one of: PubMed, citeseer, cora"
    )


def test_unknown_name_without_a_near_match_gives_no_hint():
    text = str(unknown_name("solver", "xyzzy", {"neumann": 1, "exact": 2}))
    assert text == "solver 'xyzzy' is not known; choose one of: exact, neumann"


def test_errors_of_the_library_have_one_base():
    assert issubclass(InputError, HcdcError)
    assert issubclass(NumericalError, HcdcError)
    assert not issubclass(NumericalError, InputError)


def test_require_returns_the_module():
    import json.decoder

    assert require("json.decoder", "graph") is json.decoder


def test_require_names_the_package_and_the_extra():
    with pytest.raises(InputError, match=r"needs the package 'no_such_package'.*hcdc\[graph\]") as caught:
        require("no_such_package.inner", "graph")
    assert isinstance(caught.value.__cause__, ImportError)
