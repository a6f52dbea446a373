"""Several processes of one gateway on one machine, and the parent that minds them (docs/scale.md)."""

from gateway.workers.parent import run_workers

__all__ = ["run_workers"]
