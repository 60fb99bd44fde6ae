"""The comparison of Mohapatra et al., repeated: matching over vectors of 0, 1 and ``*``."""
