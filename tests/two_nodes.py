"""A real Ray cluster of two nodes with one processor each."""

import pytest


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    made = cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "env_vars": {"RAY_NODE": "head"}},
    )
    made.add_node(num_cpus=1, env_vars={"RAY_NODE": "second"})
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()
