from reducer_conformance import GraphReducerConformance

from hcdc.condensers._reach import Reach


class TestReach(GraphReducerConformance):
    def make(self):
        return Reach()
