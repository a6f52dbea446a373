"""What the endpoints that generate have in common: fields of requests, the run of an answer, regions of ids."""
