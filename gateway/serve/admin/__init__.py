"""The admin port: health, metrics, status, and what a person is advised."""
