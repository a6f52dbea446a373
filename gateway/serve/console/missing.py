"""What a page says where the thing that its address names is not there."""

from gateway.errors import RequestInvalid


class NotHere(RequestInvalid):
    """No such server, tool or conversation, or no longer."""
