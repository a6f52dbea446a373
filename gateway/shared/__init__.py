"""A store that replicas ask for what one of them alone can't know; optional, and never in anybody's way."""

from gateway.shared.interface import Bounds, Record, Room, Shared, SharedStatus

__all__ = ["Bounds", "Record", "Room", "Shared", "SharedStatus"]
