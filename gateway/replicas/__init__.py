"""Replicas of one gateway, which share only a secret: sealed names of what lives in one, and how requests get there."""

from gateway.replicas.replica_interface import ALONE, Replica, Replicas

__all__ = ["ALONE", "Replica", "Replicas"]
