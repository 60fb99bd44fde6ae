"""The controller of Wang et al., and searches that go further; all compare a plan with its neighbours."""
