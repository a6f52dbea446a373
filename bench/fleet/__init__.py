"""A simulated fleet of engines and gateways: which engine is asked, what its cache holds, how long everybody waits."""
