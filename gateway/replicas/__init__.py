"""Replicas of one gateway that share a key and nothing else: sealed names of what lives in one, and the way to it."""

from gateway.replicas.interface import ALONE, Replica, Replicas

__all__ = ["ALONE", "Replica", "Replicas"]
