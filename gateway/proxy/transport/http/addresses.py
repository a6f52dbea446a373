"""Which servers may be reached.

A URL that the operator configured may lead anywhere, one that somebody else named may not lead into our own network
(SSRF). The check is made on the very address that is connected to, so that a name can't resolve differently in between.
It opens nothing.
"""

from gateway.http1.origin import Origin
from gateway.proxy.transport.interface import NoAnswer
from leaf_sdk.fetch.public_address import is_public


def check_public(origin: Origin, addresses: list[str], listed: frozenset[Origin]) -> None:
    """Refuse to connect to a private network on somebody else's behalf.

    Args:
        origin: the requested origin.
        addresses: the addresses that its host resolved to.
        listed: the origins that the operator named in the configuration.

    Raises:
        NoAnswer: one of the addresses is not public, and the origin is not listed.
    """
    if origin in listed:
        return
    private = [address for address in addresses if not is_public(address)]
    if private:
        raise NoAnswer(
            f"{str(origin)!r} was named by a server and leads to the private address {private[0]}; only a URL in the "
            "gateway's own configuration may do that: set it there if it is the right one"
        )
