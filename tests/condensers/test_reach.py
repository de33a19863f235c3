from reducer_conformance import ReducerConformance

from hcdc.condensers._reach import Reach


class TestReach(ReducerConformance):
    def make(self):
        return Reach()
