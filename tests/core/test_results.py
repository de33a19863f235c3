"""Results and their documents, those of the records too."""

import json
from pathlib import Path

import pytest

from hcdc.core import records
from hcdc.core.results import Cost, Evaluation, Rival

RECORDS = Path(__file__).parents[2] / "records"


def test_what_is_not_defined_is_none_and_a_document_gives_the_result_again():
    rival = Rival(name="real-val", proxy=[1.0, float("inf")], spearman=float("nan"))
    found = Evaluation(dataset="d", method="m", proxy=(1.0, 2.0), truth=[0.1, 0.2], rivals=[rival])
    assert (rival.proxy, rival.spearman) == ([1.0, None], None)
    assert Evaluation.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.rival("real-val") == rival
    assert found.rival("other") is None
    assert found.pick is None


@pytest.mark.parametrize("name", ["filters-80", "gnn-zoo"])
def test_recorded_evaluations_are_read(name):
    for line in records.read(RECORDS / f"{name}.jsonl"):
        found = Evaluation.from_json(line)
        assert found.spearman == line["spearman"]
        assert list(found.interval) == line["interval"]
        assert [rival.name for rival in found.rivals] == [rival["name"] for rival in line["rivals"]]
        assert found.cost == Cost(line["condense_seconds"], line["proxy_seconds_per_candidate"], "the copy")


def test_seconds_of_trials():
    assert Cost(10.0, 2.0).seconds(5) == 20.0
    assert Cost(None, 2.0).seconds(5) is None
