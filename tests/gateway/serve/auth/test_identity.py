"""How a refusal reads where it is logged."""

from gateway.serve.auth.identity import CredentialRefused


def test_a_refusal_reads_as_its_detail() -> None:
    assert str(CredentialRefused("expired", "the token has expired")) == "the token has expired"
