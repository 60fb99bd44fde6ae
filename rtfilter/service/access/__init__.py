"""Users with passwords and tokens, their roles, and their limits."""

from rtfilter.service.access.authenticate import Access as Access
from rtfilter.service.access.authenticate import Limits as Limits
