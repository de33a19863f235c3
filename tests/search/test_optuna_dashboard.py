"""Optuna's dashboard on a journal that a search wrote, asked through its JSON interface without a socket."""

import io
import json
from urllib.parse import quote, urlsplit

import pytest
from tests.search.clocks import bowl, full

import hcdc

pytest.importorskip("optuna")
dashboard = pytest.importorskip("optuna_dashboard", reason="pip install optuna-dashboard")


def asked(app, path):
    """The JSON that the dashboard answers to a GET."""
    parts, said = urlsplit(path), []
    environment = {
        "REQUEST_METHOD": "GET", "PATH_INFO": quote(parts.path), "QUERY_STRING": parts.query,
        "SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.input": io.BytesIO(), "wsgi.errors": io.StringIO(), "wsgi.url_scheme": "http",
    }  # fmt: skip
    answer = b"".join(app(environment, lambda status, headers, error=None: said.append(status)))
    assert said == ["200 OK"], answer
    return json.loads(answer)


def test_the_dashboard_lists_studies_and_their_trials(clock, quick, tmp_path):
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    def fault(trial, data):
        if trial.params["x"] < -0.5:
            raise ValueError("too far")

    path = tmp_path / "s.log"
    found = hcdc.search(bowl(clock, fault=fault), full(), budget=60, storage=path)
    before = path.read_bytes()
    app = dashboard.wsgi(JournalStorage(JournalFileBackend(str(path))))
    listed = {study["study_name"]: study for study in asked(app, "/api/studies")["study_summaries"]}
    assert set(listed) == {"search", *(f"search/{rung}" for rung in found.studies)}
    states = set()
    for rung, study in found.studies.items():
        assert listed[f"search/{rung}"]["directions"] == ["maximize"]
        shown = asked(app, f"/api/studies/{listed[f'search/{rung}']['study_id']}?after=0")
        assert len(shown["trials"]) == len(study.trials) > 0
        for there, here in zip(shown["trials"], study.trials):
            assert there["state"].lower() == here.state.name.lower()
            assert there.get("values") == here.values
            assert {p["name"]: float(p["param_external_value"]) for p in there["params"]} == here.params
            states.add(there["state"])
        assert shown["best_trials"][0]["values"] == [study.best_value]
        assert {p["name"] for p in shown["union_search_space"]} == {"x", "y"}
    assert states == {"Complete", "Fail"}
    assert path.read_bytes() == before  # looking changes nothing
