"""What the endpoints that generate have in common: request fields, how an answer is run, regions of ids."""
