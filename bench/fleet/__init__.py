"""A fleet of engines and gateways on paper: who is asked, what its cache holds, how long everybody waits."""
