"""A store that replicas ask for what no single replica can know. It is optional, and everything works without it."""

from gateway.shared.store_interface import Shared, SharedStatus, StoreBounds, StoreKind, StoreRecord

__all__ = ["Shared", "SharedStatus", "StoreBounds", "StoreKind", "StoreRecord"]
