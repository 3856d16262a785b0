"""A web service and its page."""
