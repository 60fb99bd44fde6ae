"""Who may come in, as whom, and how much of it: users with passwords and tokens, and their limits."""

from rtfilter.service.access.authenticate import Access as Access
from rtfilter.service.access.authenticate import Limits as Limits
