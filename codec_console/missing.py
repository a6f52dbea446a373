"""The error of a page whose URL names something that does not exist."""

from gateway.errors import RequestInvalid


class PageNotFound(RequestInvalid):
    """There is no such server or tool, or it is gone."""
