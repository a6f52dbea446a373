"""Every reason for recomputed tokens has its words and its advice."""

from gateway.observe.exposition import LOSS_REASONS, OTHER
from gateway.observe.prompt_losses import WORDS, advice_on_loss
from tests.cases import each_of

REASONS = [reason for reason in LOSS_REASONS if reason != OTHER]


@each_of("reason", REASONS)
def test_every_reason_has_words_and_advice(reason: str) -> None:
    assert WORDS[reason]
    assert advice_on_loss(reason, None, None)


def test_advice_on_what_a_client_changed_names_the_place() -> None:
    assert advice_on_loss("client_changed", 3, 7).startswith("message 3 changes at character 7; ")
    assert {*WORDS} == {*REASONS}
