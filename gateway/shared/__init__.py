"""A store that replicas ask for what no single one of them can know. It is optional, and nobody depends on it."""

from gateway.shared.interface import Bounds, Record, Room, Shared, SharedStatus

__all__ = ["Bounds", "Record", "Room", "Shared", "SharedStatus"]
