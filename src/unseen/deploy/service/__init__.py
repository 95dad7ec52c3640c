"""`unseen serve`: an HTTP service with batching, alarms by domain, metrics and a page."""
