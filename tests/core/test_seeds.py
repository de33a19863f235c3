import numpy as np
import torch

from hcdc.core.seeds import derive, numpy_stream, stream


def test_values_are_stable():
    """Recorded runs rest on these numbers: they never change."""
    assert derive(0, "judge") == 5793417188029908474
    assert derive(100, "init", 3, "full") == 5853623231944395835
    assert stream(0, "judge").initial_seed() == derive(0, "judge")


def test_equal_arguments_give_equal_draws():
    assert torch.equal(
        torch.rand(5, generator=stream(3, "init", 1)), torch.rand(5, generator=stream(3, "init", 1))
    )
    assert np.array_equal(numpy_stream(3, "init", 1).random(5), numpy_stream(3, "init", 1).random(5))


def test_seeds_roles_and_keys_all_differ():
    roles = ["trajectory", "holdout", "probe", "judge", "init", "sample", "bootstrap"]
    keys = [(), (0,), (1,), (0, 1), (1, 0), ("0", "train")]
    drawn = {derive(seed, role, *key) for seed in range(-2, 20) for role in roles for key in keys}
    assert len(drawn) == 22 * len(roles) * len(keys)


def test_parts_do_not_run_into_each_other():
    assert derive(1, "a", "bc") != derive(1, "ab", "c")
    assert derive(1, "a", 12) != derive(1, "a", 1, 2)
    assert derive(11, "a") != derive(1, "1a")


def test_seeds_fit_every_generator():
    for seed in (-1, 0, 2**70):
        value = derive(seed, "role")
        assert 0 <= value < 2**63
        torch.Generator().manual_seed(value)


def test_whole_numbers_of_any_type_are_the_same_seed():
    assert derive(np.int64(5), "role") == derive(5, "role") == derive(True * 5, "role")


def test_the_global_generators_are_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    torch.rand(3, generator=stream(0, "role"))
    numpy_stream(0, "role").random(3)
    assert torch.equal(torch.get_rng_state(), before)
