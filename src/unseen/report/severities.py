"""Domains named CORRUPTION/SEVERITY, such as fog/3."""

import re

SEVERITY = re.compile(r"(.+)/(\d+)")
MAX_DOMAINS = 14  # shown one by one; more of them are averaged
