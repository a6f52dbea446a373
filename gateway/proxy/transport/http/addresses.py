"""Which servers may be reached.

Judges addresses: a URL that the operator wrote may lead anywhere, one that somebody else named may not lead into our
own network (SSRF). The judgement is made on the very address that is connected to, so that no name can answer
differently in between. It opens nothing.
"""

from gateway.http1.origin import Origin
from gateway.proxy.transport.interface import NoAnswer
from leaf_sdk.fetch.public_address import is_public


def check_public(origin: Origin, addresses: list[str], listed: frozenset[Origin]) -> None:
    """Refuse to connect into a private network for somebody else.

    Args:
        origin: what was asked for.
        addresses: what its host resolved to.
        listed: what the operator named in the configuration.

    Raises:
        NoAnswer: one of the addresses is not public, and the origin is not listed.
    """
    if origin in listed:
        return
    private = [address for address in addresses if not is_public(address)]
    if private:
        raise NoAnswer(
            f"{str(origin)!r} was named by a server and leads to the private address {private[0]}, which only a URL in "
            "the gateway's own configuration may: set it there if it is meant"
        )
