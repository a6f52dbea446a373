"""Replicas of one gateway, which share a secret alone: sealed names of what lives in one, and the way there."""

from gateway.replicas.interface import ALONE, Replica, Replicas

__all__ = ["ALONE", "Replica", "Replicas"]
