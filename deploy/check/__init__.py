"""`make deploy-check`: the deployment files, built, started and measured for real on one machine without Docker.

Each module holds one step and says what it found; `__main__` runs them in order and prints the table. Nothing here is
part of an image.
"""
