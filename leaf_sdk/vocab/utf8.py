"""Tells whether bytes of UTF-8 end inside a character, as the bytes of a token may. Source: RFC 3629, section 3."""


def cuts_a_character(data: bytes) -> bool:
    """Whether `data` ends inside a UTF-8 character."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return needed > back
    return False
