"""What the admin port says of a running gateway."""

import sys


def test_state_of_every_upstream_is_shown_and_a_dead_one_makes_nobody_unready(start_gateway, tells_time):
    dead = {"command": sys.executable, "args": ["-c", ""]}
    gateway = start_gateway({"time": tells_time, "dead": dead})

    status, report = gateway.readiness()

    assert (status, report["ready"]) == (200, True)
    assert report["upstreams"]["time"] == {"state": "up", "transport": "stdio", "tools": 1, "restarts": 0}
    assert report["upstreams"]["dead"]["tools"] == 0
    assert report["upstreams"]["dead"]["state"] != "up"
