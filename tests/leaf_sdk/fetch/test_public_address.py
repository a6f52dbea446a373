"""Which addresses belong to the internet."""

from leaf_sdk.fetch.public_address import is_public
from tests.cases import each_of


@each_of(
    "address",
    [
        *("8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"),
        *("2001:4860:4860::8888", "2001:4860::5efe:8.8.8.8", "2a00:1450:4001::200e"),
    ],
)
def test_address_on_the_internet_is_public(address):
    assert is_public(address)


@each_of(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "64:ff9b:1::7f00:1",
        "64:ff9b:1::8.8.8.8",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "fec0::1",
        "feff::1",
        "::127.0.0.1",
        "::8.8.8.8",
        "::ffff:0:127.0.0.1",
        "::ffff:0:8.8.8.8",
        "2002:a9fe:a9fe::1",
        "2002:c0a8:1::1",
        "2001:0:7f00:1:0:0:f7f7:f7f7",
        "2001:4860::5efe:7f00:1",
        "2001:4860::200:5efe:10.0.0.1",
        "fe80::5efe:8.8.8.8",
        "3fff::1",
        "5f00::1",
        "100::1",
        "4000::1",
        "192.0.0.8",
        "192.88.99.1",
        "::ffff:192.88.99.1",
        "no address",
    ],
)
def test_address_of_this_machine_a_private_net_a_link_or_a_group_is_not_public(address):
    assert not is_public(address)
