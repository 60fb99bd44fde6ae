"""Users with passwords and tokens, their roles, and their limits."""

from rtfilter.service.access.user_checks import Access as Access
from rtfilter.service.access.user_checks import UserLimits as UserLimits
