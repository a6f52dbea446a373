"""Raw tokens to bytes: GPT-2's alphabet, in which every byte has a printable character of its own.

A byte-level vocabulary writes its tokens in these 256 characters (a space is `Ġ`), so that a token can hold half of a
UTF-8 character and still be text in a JSON file. Knows nothing of merges, ids or special tokens.
Source: GPT-2's byte encoder; Codec specification 0.5, "Encode".
"""

from collections.abc import Iterable


def _alphabet() -> list[str]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(stand_ins)) for byte in range(256)]


ALPHABET: tuple[str, ...] = tuple(_alphabet())
"""The character that stands for each byte, by byte value."""

_BYTE_OF = {character: byte for byte, character in enumerate(ALPHABET)}.__getitem__


def token_bytes(token: str) -> bytes:
    """Return the bytes that a raw vocabulary entry stands for.

    A token with a character outside the alphabet is not written in it (an added token such as `<｜end｜>`): its bytes
    are then its own UTF-8, as in Hugging Face's ByteLevel decoder.
    """
    try:
        return bytes(map(_BYTE_OF, token))
    except KeyError:
        return token.encode()


def missing_bytes(tokens: Iterable[str]) -> list[int]:
    """List the bytes that no one-byte token spells: text that needs them loses them when it is encoded."""
    known = set(tokens)
    return [byte for byte, character in enumerate(ALPHABET) if character not in known]
