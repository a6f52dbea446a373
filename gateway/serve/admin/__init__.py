"""The admin port: health, metrics, status, and advice for the operator."""
