from reducer_conformance import GraphReducerConformance

from hcdc.condensers import make_reducer


class TestReach(GraphReducerConformance):
    def make(self):
        return make_reducer("reach")
