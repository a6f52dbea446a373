"""What a tool call tells a leaf about the ids that are wanted, as far as the configuration allows.

Turns params whose `_meta` names the reader's map into what we send to the server: nothing, that map, or that map and
the announcement that packed ids are understood. This is announced only for calls whose ids are read here: a client that
named no map gets its result as it came, and could not read packed ids. It knows no connection.
"""

from collections.abc import Mapping
from typing import Any

from gateway.config.model import WantedIds
from gateway.protocol.eras import MAP_KEY, meta_of
from leaf_sdk.leaf.packing import announce_packing


def wanted_ids(params: Mapping[str, Any], policy: WantedIds) -> dict[str, Any]:
    """The `_meta` keys for a server under that policy. `params`: as the gateway's endpoints and its agent make them."""
    reader = meta_of(params).get(MAP_KEY)
    if policy == "any" or not isinstance(reader, str):
        return {}
    named = {MAP_KEY: reader}
    return announce_packing(named) if policy == "packed" else named
