"""A store that replicas ask for what no single replica can know. It is optional, and everything works without it."""

from gateway.shared.store_interface import Bounds, Kind, Record, Shared, SharedStatus

__all__ = ["Bounds", "Kind", "Record", "Shared", "SharedStatus"]
