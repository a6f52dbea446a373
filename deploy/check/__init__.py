"""`make deploy-check`: the deployment files, actually built, started and measured on one machine without Docker.

Each module holds a step, or several, and reports what it found; `__main__` runs them in order and prints the table.
Nothing here is part of an image.
"""
