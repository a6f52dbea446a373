"""Replicas of one gateway that share a key and nothing else: sealed names of what lives in one, and the way to it."""

from gateway.replicas.owners import Replica
from gateway.replicas.replicas import ALONE, Connected, Replicas, replicas_of

__all__ = ["ALONE", "Connected", "Replica", "Replicas", "replicas_of"]
