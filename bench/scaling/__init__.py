"""Many engines and gateways in simulation: which engine is asked, what its cache holds, how long everybody waits."""
