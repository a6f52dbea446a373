"""Ids of a map equal those of the library that the tokenizer was made for, over thousands of texts of every kind.

The vocabularies are trained or put together here; `make test-tokenizers` does the same with the real ones.
"""

import base64
import io
import json
from collections.abc import Callable
from itertools import pairwise

import pytest
import sentencepiece
import tiktoken
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram

from leaf_sdk.errors import MapUnsupported, NotAMap
from leaf_sdk.testing.samples import CODE, PROSE, samples
from leaf_sdk.vocab import TokenMap, build_map, load_map
from leaf_sdk.vocab.agreement import compare_texts
from leaf_sdk.vocab.pre_tokenizers import PreTokenizer
from leaf_sdk.vocab.score_merges import merge_by_score, ranked_merges
from leaf_sdk.vocab.tiktoken_file import CUTS
from tests.cases import each_of

COUNT = 700
FIRST = 12_000
TEXTS = list(samples(COUNT))
# Words of prose and code alone: most characters of the texts that are compared are unknown to what is trained on these.
KNOWN = set(" ".join((*PROSE, *CODE)))
LINES = [line for text in samples(1500, seed=7) for line in text.split("\n")]
TRAINING = [line for line in LINES if 3 < len(line) < 500 and set(line) <= KNOWN]
KINDS = {
    "bpe": {"model_type": "bpe"},
    "bpe without a prefix": {"model_type": "bpe", "add_dummy_prefix": False},
    "bpe that collapses spaces": {"model_type": "bpe", "remove_extra_whitespaces": True},
    "unigram": {"model_type": "unigram"},
    "unigram without a prefix": {"model_type": "unigram", "add_dummy_prefix": False},
    "unigram that collapses spaces": {"model_type": "unigram", "remove_extra_whitespaces": True},
}


def train(**options: object) -> bytes:
    written = io.BytesIO()
    settings = {
        "vocab_size": 2500,
        "hard_vocab_limit": False,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "character_coverage": 0.98,
        "max_sentence_length": 10000,
        "user_defined_symbols": ["<tool_call>", "[INST]"],
        "num_threads": 1,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING), model_writer=written, **(settings | options)
    )
    return written.getvalue()


@pytest.fixture(scope="module")
def trained() -> Callable[[str], bytes]:
    models: dict[str, bytes] = {}

    def get(kind: str) -> bytes:
        if kind not in models:
            models[kind] = train(**KINDS[kind])
        return models[kind]

    return get


@pytest.fixture(scope="module")
def ranks(smollm: TokenMap) -> dict[bytes, int]:
    """SmolLM2's first tokens as tiktoken ranks: they are numbered in the order of their merges."""
    table = {bytes([byte]): byte for byte in range(256)}
    ordinary = [smollm.token_bytes(i) for i in sorted(smollm.vocab.values())[:FIRST] if i not in smollm.special_ids]
    for token in ordinary:
        table.setdefault(token, len(table))
    return table


def rank_file(ranks: dict[bytes, int]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


def agree(token_map: TokenMap, reference: Callable[[str], list[int]]) -> None:
    found = compare_texts(token_map, reference, TEXTS)
    assert found.differences == []
    assert found.compared > 0.9 * COUNT


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentencepiece_model_gives_the_ids_of_sentencepiece(trained, kind):
    model = trained(kind)
    token_map = load_map(build_map(model))
    assert token_map.can_encode
    agree(token_map, sentencepiece.SentencePieceProcessor(model_proto=model).encode)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_floats_are_added_as_sentencepiece_adds_them(trained, kind):
    model = trained(kind)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    token_map = load_map(build_map(model))
    for length in range(1, 400, 7):
        for text in ("a" * length, "ab " * length, "é" * length, "中" * length):
            assert token_map.encode(text) == reference.encode(text)


def test_user_defined_symbols_are_not_found_in_ordinary_text(trained):
    token_map = load_map(build_map(trained("bpe")))
    marker = token_map.special_tokens["<tool_call>"]
    assert marker not in token_map.encode("a <tool_call> b")
    assert token_map.encode("<tool_call>", specials=True) == [marker]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"normalization_rule_name": "nmt_nfkc"}, "character map"),
        ({"byte_fallback": False}, "row of bytes"),
        ({"treat_whitespace_as_suffix": True}, "end of words"),
        ({"model_type": "char", "vocab_size": 400}, "model_type"),
        ({"user_defined_symbols": ["  "]}, "user-defined symbol"),
    ],
)
def test_a_sentencepiece_model_that_is_not_reproduced_is_refused_by_name(options, words):
    with pytest.raises(MapUnsupported, match=words):
        build_map(train(**options))


def test_a_sentencepiece_model_that_breaks_off_is_refused(trained):
    model = trained("bpe")
    for length in (10, len(model) // 2, len(model) - 1):
        with pytest.raises((NotAMap, MapUnsupported)):
            build_map(model[:length])


@pytest.mark.parametrize("cut", CUTS)
def test_a_tiktoken_file_gives_the_ids_of_tiktoken(ranks, cut):
    token_map = load_map(build_map(rank_file(ranks), cut=CUTS[cut], special_tokens={"<|end|>": 60000}))
    reference = tiktoken.Encoding("x", pat_str=CUTS[cut].pattern, mergeable_ranks=ranks, special_tokens={})
    agree(token_map, lambda text: reference.encode(text, disallowed_special=()))


def test_a_tekken_file_gives_the_ids_of_its_ranks_behind_the_special_tokens(ranks):
    rows = [{"rank": rank, "token_bytes": base64.b64encode(token).decode()} for token, rank in ranks.items()]
    config = {
        "pattern": CUTS["o200k"].pattern,
        "default_num_special_tokens": 100,
        "default_vocab_size": len(rows) + 100 - 5,
    }
    document = {"config": config, "vocab": rows}
    token_map = load_map(build_map(json.dumps(document).encode()))
    kept = {token: rank for token, rank in ranks.items() if rank < len(rows) - 5}
    reference = tiktoken.Encoding("x", pat_str=CUTS["o200k"].pattern, mergeable_ranks=kept, special_tokens={})
    agree(token_map, lambda text: [100 + i for i in reference.encode(text, disallowed_special=())])
    assert token_map.special_tokens["[INST]"] == 3
    assert token_map.special_tokens["<SPECIAL_99>"] == 99


def test_a_token_that_merging_does_not_reach_is_found_as_a_whole_piece():
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"xyz": 256}
    token_map = load_map(build_map(rank_file(ranks), cut=CUTS["gpt2"]))
    reference = tiktoken.Encoding("x", pat_str=CUTS["gpt2"].pattern, mergeable_ranks=ranks, special_tokens={})
    for text in ("xyz", "xyz xyzz", "axyz"):
        assert token_map.encode(text) == reference.encode(text)
    assert token_map.ignore_merges


@pytest.mark.parametrize("data", [b"aGk= x\n", b"aGk= 1\n!!! 2\n", b"aGk= 0\n"])
def test_a_damaged_rank_file_is_refused(data):
    with pytest.raises(NotAMap):
        build_map(data, cut=CUTS["gpt2"])


SPACED = {
    "prepend": (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None),
    "replace": (normalizers.Replace(" ", "▁"), None),
    "replace and an inert split": (normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous")),
    "first, whole": (None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
    "always, split": (None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True)),
    "never, split": (None, pre_tokenizers.Metaspace(prepend_scheme="never", split=True)),
}


@pytest.fixture(scope="module")
def pieces(trained) -> tuple[dict[str, int], list[tuple[str, float]], list[tuple[str, str]]]:
    token_map = load_map(build_map(trained("bpe")))
    unigram = sentencepiece.SentencePieceProcessor(model_proto=trained("unigram"))
    scored = [(unigram.id_to_piece(i), unigram.get_score(i)) for i in range(unigram.get_piece_size())]
    return dict(token_map.vocab), scored, [tuple(pair) for pair in token_map.merges]


@each_of("spaced", SPACED)
@each_of("model", ["BPE", "Unigram"])
def test_a_metaspace_tokenizer_json_gives_the_ids_of_tokenizers(pieces, model, spaced):
    vocab, scored, merges = pieces
    reference = (
        Tokenizer(BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        if model == "BPE"
        else Tokenizer(Unigram(scored, unk_id=0, byte_fallback=True))
    )
    normalizer, pre_tokenizer = SPACED[spaced]
    if normalizer is not None:
        reference.normalizer = normalizer
    if pre_tokenizer is not None:
        reference.pre_tokenizer = pre_tokenizer
    reference.add_special_tokens(["<unk>", "<s>", "</s>", "<tool_call>", "[INST]"])
    token_map = load_map(build_map(reference.to_str().encode()))
    agree(token_map, lambda text: reference.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize(
    "cut",
    [
        (r"\p{N}{1,3}", "[一-龥]+", r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|\s+"),
        ("[0-9][0-9][0-9]", r"'s|\p{L}+"),
    ],
)
def test_a_cut_in_stages_gives_the_ids_of_tokenizers_by_a_key_of_ours(smollm, cut):
    ordinary = {token: i for token, i in smollm.vocab.items() if i not in smollm.special_ids}
    reference = Tokenizer(BPE(vocab=ordinary, merges=list(smollm.merges)))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cut]
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    data = build_map(reference.to_str().encode())
    assert json.loads(data)["x_pre_tokenizer_stages"] == list(cut)
    assert load_map(data).pre_tokenizer == PreTokenizer(cut[-1], before=cut[:-1])
    agree(load_map(data), lambda text: reference.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("normalizer", ["NFC", "NFD", "NFKC", "NFKD"])
def test_a_normalizer_gives_the_ids_of_tokenizers(smollm, normalizer):
    ordinary = {token: i for token, i in smollm.vocab.items() if i not in smollm.special_ids}
    reference = Tokenizer(BPE(vocab=ordinary, merges=list(smollm.merges)))
    reference.normalizer = getattr(normalizers, normalizer)()
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    token_map = load_map(build_map(reference.to_str().encode()))
    assert not token_map.exact_decode
    agree(token_map, lambda text: reference.encode(text, add_special_tokens=False).ids)


def test_added_tokens_of_blanks_and_tags_are_found_in_ordinary_text_and_markers_are_not(pieces):
    vocab, _, merges = pieces
    reference = Tokenizer(BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True))
    reference.normalizer = normalizers.Replace(" ", "▁")
    reference.add_special_tokens(["<unk>", "<s>", "</s>", "[INST]"])
    reference.add_tokens(["\n\n", "<h1>", "<tool_call>"])
    token_map = load_map(build_map(reference.to_str().encode()))
    assert token_map.added_tokens == ("\n\n", "<h1>")
    agree(token_map, lambda text: reference.encode(text, add_special_tokens=False).ids)
    assert token_map.vocab["<h1>"] in token_map.encode("<h1>x\n\n</h1>")
    assert not token_map.special_ids & set(token_map.encode("<tool_call></s>[INST]"))


def test_merges_of_scores_are_what_the_rule_says(trained):
    token_map = load_map(build_map(trained("bpe")))
    model = sentencepiece.SentencePieceProcessor(model_proto=trained("bpe"))
    ordinary = [i for i in range(model.get_piece_size()) if not (model.is_control(i) or model.is_byte(i))]
    scores = {model.id_to_piece(i): model.get_score(i) for i in ordinary if i not in token_map.special_ids}
    assert [" ".join(pair) for pair in token_map.merges] == ranked_merges(scores).merges
    for text in (each.replace(" ", "▁") for each in TEXTS[:300]):
        assert merge_by_score(text, scores) == _by_ranks(text, {pair: n for n, pair in enumerate(token_map.merges)})


def _by_ranks(text: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    parts = list(text)
    while True:
        found = [(ranks[pair], at) for at, pair in enumerate(pairwise(parts)) if pair in ranks]
        if not found:
            return parts
        _, at = min(found)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@pytest.mark.parametrize(
    "scores",
    [
        {"a": -1.0, "b": -2.0, "c": -3.0, "ab": -4.0, "bc": -4.0},
        {"a": -1.0, "b": -2.0, "aa": -3.0, "aaa": -3.0, "ab": -9.0},
        {"a": -1.0, "aa": -3.0, "aaa": -3.0},
    ],
)
def test_pieces_of_one_score_are_refused_where_order_would_matter(scores):
    with pytest.raises(MapUnsupported, match="score"):
        ranked_merges(scores)


def test_runs_of_blanks_of_one_score_are_tried_at_every_length():
    runs = {"▁" * length: -1e9 for length in (2, 4, 8, 16, 3, 5, 6, 7, *range(9, 16))}
    scores = {"▁": -5.0, "a": -1.0, "▁a": -2.0} | runs
    assert "▁a" in merge_by_score("▁▁▁a", scores)
    assert ranked_merges(scores).merges[0] == "▁ a"
