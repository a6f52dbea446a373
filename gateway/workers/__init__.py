"""Several processes of one gateway on one machine, and the parent that minds them (docs/scale.md)."""
