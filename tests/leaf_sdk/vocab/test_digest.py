import hashlib

import pytest

from leaf_sdk.errors import MapHashMalformed
from leaf_sdk.vocab import map_digest, normalise_hash
from tests.cases import each_of

HEX = "5ee1ebd3d8521843c99b833adc5bd670bf65af10f4c4b90fb42991ab25f2fafb"


@pytest.mark.parametrize("spelling", [HEX, HEX.upper(), f"sha256:{HEX}", f"sha256:{HEX.upper()}"])
def test_every_spelling_of_a_hash_becomes_the_one_spelling(spelling):
    assert normalise_hash(spelling) == f"sha256:{HEX}"


@each_of(
    "wrong",
    ["", "not-a-hash", HEX[:-1], HEX + "0", f"sha512:{HEX}", f"sha256:{HEX[:-1]}g", f"SHA256:{HEX}", f"sha256:{HEX}\n"],
)
def test_what_is_no_sha256_is_refused_by_name(wrong):
    with pytest.raises(MapHashMalformed, match="must be 'sha256:") as raised:
        normalise_hash(wrong)
    assert repr(wrong) in raised.value.message


def test_the_golden_map_has_the_published_hash(golden_map_path, vectors):
    data = golden_map_path.read_bytes()
    assert map_digest(data) == vectors("byte_level")["sha256"]
    assert map_digest(data) == "sha256:" + hashlib.sha256(data).hexdigest()
