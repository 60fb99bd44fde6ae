"""The controller of Wang et al., and extended searches; all compare a plan with its neighbours."""
