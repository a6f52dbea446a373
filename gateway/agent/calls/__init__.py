"""Calls of the gateway's tools: which are offered, how they run, and how their results are spliced in."""
