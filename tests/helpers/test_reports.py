"""What tests log comes whole from the processes that run them."""

import logging


def test_half_a_character_may_be_logged():
    """Without what `conftest` does, the process that ran this could send no report, and all tests ended."""
    logging.getLogger("rtfilter").warning("\ud800")
