"""Who asks, and how much they may: keys, access tokens, the gateway's own token, hosts and rates."""
