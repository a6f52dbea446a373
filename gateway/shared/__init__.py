"""A store that replicas ask for what no single replica can know. It is optional, and everything works without it."""

from gateway.shared.interface import Bounds, Record, Room, Shared, SharedStatus

__all__ = ["Bounds", "Record", "Room", "Shared", "SharedStatus"]
