"""Who may have a connection open: bounds in all, for an address, and by descriptor, and what is said of a refusal."""

import pytest

from gateway.config.access import ConnectionsConfig
from gateway.observe.client_metrics import END_REASONS
from gateway.observe.metrics import Metrics
from gateway.serve.http.connection_limits import ClientConnections, TrustedProxies, network_of


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Site:
    """Connections with small bounds, on a clock of the test's own."""

    def __init__(self, *, total: int = 100, per_address: int = 100, files: int | None = None) -> None:
        self.clock, self.metrics = Clock(), Metrics()
        self.connections = ClientConnections(
            ConnectionsConfig(total=total, per_address=per_address),
            self.metrics.connections,
            proxies=TrustedProxies(("10.0.0.0/8",)),
            files=files,
            clock=self.clock,
        )

    def admit(self, *addresses: str) -> list[str | None]:
        return [self.connections.admit(address, 5) for address in addresses]

    def ended(self) -> dict[str, float]:
        read = self.metrics.registry.get_sample_value
        counts = {reason: read("codec_connections_ended_total", {"reason": reason}) for reason in END_REASONS}
        return {reason: count for reason, count in counts.items() if count}


def test_total_of_open_connections_is_bounded_and_one_that_leaves_makes_room() -> None:
    site = Site(total=2)

    assert site.admit("1.1.1.1", "1.1.1.2", "1.1.1.3") == [None, None, "total"]
    assert len(site.connections) == 2
    site.connections.leave("1.1.1.1")
    assert len(site.connections) == 1
    assert site.admit("1.1.1.3") == [None]
    assert site.ended() == {"total": 1}


def test_address_has_a_share_that_is_its_own_and_one_that_leaves_makes_room() -> None:
    site = Site(per_address=2)

    assert site.admit("1.1.1.1", "1.1.1.1", "1.1.1.1", "1.1.1.2") == [None, None, "address", None]
    site.connections.leave("1.1.1.1")
    assert site.admit("1.1.1.1", "1.1.1.1") == [None, "address"]
    for _ in range(2):
        site.connections.leave("1.1.1.1")
    assert site.admit("1.1.1.1", "1.1.1.1", "1.1.1.1") == [None, None, "address"]
    assert site.ended() == {"address": 3}


def test_trusted_proxy_has_as_many_connections_as_there_are() -> None:
    site = Site(total=3, per_address=1)

    assert site.admit("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1") == [None, None, None, "total"]
    site.connections.leave("10.0.0.1")
    assert site.admit("1.1.1.1") == [None]


@pytest.mark.parametrize(("descriptor", "reason"), [(6, None), (7, "descriptors"), (8, "descriptors")])
def test_descriptors_from_the_limit_on_are_not_for_clients(descriptor: int, reason: str | None) -> None:
    assert Site(files=7).connections.admit("1.1.1.1", descriptor) == reason


def test_log_says_at_most_once_a_minute_for_each_reason_that_connections_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(per_address=1, total=2)
    site.admit("1.1.1.1", "1.1.1.1", "1.1.1.1")
    first = [record.getMessage() for record in caplog.records]
    site.admit("1.1.1.2", "1.1.1.3")
    other = len(caplog.records)
    site.clock.now = 59.9
    site.admit("1.1.1.3")
    early = len(caplog.records)
    site.clock.now = 60.0
    site.admit("1.1.1.3")

    assert len(first) == 1
    assert "connections of clients are refused" in first[0]
    assert (other, early, len(caplog.records)) == (2, 2, 3)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("2a00:1:2:3:4:5:6:7", "2a00000100020003"),
        ("a name", "a name"),
        ("n" * 65, "n" * 64),
    ],
)
def test_network_is_the_half_of_an_ipv6_address_that_its_owner_can_t_choose(address: str, network: str) -> None:
    assert network_of(address) == network
