"""Replicas on hosts of their own (network namespaces) under load: killed, drained, added, cut off from each other."""
