"""`codec-gateway bench` compared with this repository's own benches: do both measure the same?"""
