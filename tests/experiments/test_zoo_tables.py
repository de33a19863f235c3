from hcdc.experiments import graph_tables, tables
from hcdc.experiments.zoo_tables import ROWS, weighted_table


def record(seed, proxy, space="gnn-zoo", dataset="cora", label="hcdc-weighted", **rivals):
    return {
        "protocol": "gnn-zoo",
        "label": label,
        "space": {"name": space},
        "dataset": dataset,
        "train_size": 35,
        "seed": seed,
        "truth": [0.1, 0.2, 0.3],
        "test": [0.1, 0.3, 0.2],
        "proxy": proxy,
        "rivals": [{"name": name.replace("_", "-"), "proxy": scores} for name, scores in rivals.items()],
    }


FOUND = [
    record(100, [1, 2, 3], real_val=[3, 2, 1]),
    record(101, [1, 3, 2], real_val=[3, 2, 1]),
    record(100, [3, 2, 1], space="nasbench-graph", dataset="pubmed", real_val=[1, 2, 3]),
    record(100, [9, 9, 9], label="hcdc"),
]


def test_agreement_with_validation_and_test_results_per_space_and_graph():
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in weighted_table(FOUND).splitlines()
    ]
    rows = {row[0]: row[1:] for row in lines}
    assert rows["ranked by"] == ["zoo, Cora 35", "NAS-Bench-Graph, Pubmed 35"]
    assert rows[ROWS["hcdc-weighted"]] == ["0.750 (0.50 - 1.00) / 0.750", "-1.000 / -0.500"]
    assert rows[ROWS["real-val"]] == ["-1.000 (-1.00 - -1.00) / -0.500", "1.000 / 0.500"]
    assert rows[ROWS["parameter-count"]] == ["not run", "not run"]
    assert rows["the test results themselves"] == ["0.500 (0.50 - 0.50) / 1.000", "0.500 / 1.000"]
    assert rows["seeds"] == ["2", "1"]


def test_the_earlier_table_leaves_weighted_nodes_to_this_one():
    assert tables.table("zoo-weighted", FOUND) == weighted_table(FOUND)
    assert len(graph_tables.others_table(FOUND[:3]).splitlines()) == 2
