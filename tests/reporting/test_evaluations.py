import json

import pytest
from synthetic_evaluation import document, evaluation, image_copy, image_evaluation

from hcdc import InputError
from hcdc.reporting import belongs, evaluations_of, read_evaluation, short_names
from hcdc.reporting._evaluations import comparable, rivals_once


def test_reads_what_evaluate_writes(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document()))
    assert read_evaluation(path) == evaluation()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        (b"", "not JSON"),
        (b'{"dataset": "cora"', "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b'{"dataset": "cora"}', "not an evaluation"),
        (b"[1, 2]", "not an evaluation"),
        (json.dumps({**document(), "proxy": [1.0]}).encode(), "not an evaluation"),
    ],
)
def test_refuses_anything_else_in_a_sentence(tmp_path, content, said):
    path = tmp_path / "r.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        read_evaluation(path)
    assert "\n" not in str(caught.value)


def test_names_are_short_and_distinct():
    assert short_names([evaluation("random"), evaluation("hcdc")]) == ["random", "hcdc"]
    sizes = [evaluation("hcdc", train_size=30), evaluation("hcdc", train_size=60)]
    assert short_names(sizes) == ["hcdc, train size 30", "hcdc, train size 60"]
    assert short_names([evaluation(), evaluation()]) == ["hcdc #1", "hcdc #2"]


def test_only_equal_candidates_and_truth_are_compared():
    first, second = evaluation("random"), evaluation("hcdc")
    other = evaluation("hcdc", truth=[v + 0.01 for v in first.truth])
    assert comparable([first, other, second]) == [[0, 2], [1]]


def test_a_rival_that_scored_alike_is_named_once():
    lists = rivals_once([evaluation("random"), evaluation("hcdc")])
    assert [r.name for r in lists[0]] == ["random-val", "real-val", "early-stopping", "parameter-count"]
    assert [r.name for r in lists[1]] == ["random-val", "real-val"]


def test_finds_the_evaluations_of_a_file(tmp_path):
    meta = {"data": {"name": "citeseer-embedded"}, "method": "hcdc", "val_method": "aligned", "seed": 0}
    for name, value in {"a": document(), "b": document(seed=1), "c": {"other": 1}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    found = evaluations_of(meta, sorted(tmp_path.glob("*.json")))
    assert [path.name for path, _ in found] == ["a.json"]


def test_an_evaluation_belongs_to_its_copy():
    small, _ = image_copy()
    assert belongs(image_evaluation(small), small.meta)
    assert not belongs(image_evaluation(small, seed=1), small.meta)
    assert not belongs(image_evaluation(small), {**small.meta, "data": {"name": "other"}})
