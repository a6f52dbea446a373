"""Which added tokens ordinary text may spell: runs of blanks and HTML's own tags, and nothing else.

The reference matches an added token in any text, before merging. For a marker, that is what this project exists to
prevent: a tool that writes `<tool_call>` must not open one, whatever flags the tokenizer's file gives it. But Gemma
adds `\\n\\n` and `<h1>` the same way, and a text that spells one of these means that token.
"""

import re

_BLANK = re.compile(r"[\s▁]+")
_TAG = re.compile(
    r"</?(?:a|b|bbox|blockquote|body|caption|code|div|em|footer|h[1-6]|html|i|iframe|img|li|p|s|span|strong|sub|sup|"
    r"table|tbody|td|tfoot|th|thead|tr|u|ul)>"
)


def is_ordinary(token: str, *, special: bool) -> bool:
    """Return whether ordinary text may spell an added token.

    `<s>` is HTML's strike-through and also the name of a control token, so a token that its file calls special is not
    a tag.
    """
    if _BLANK.fullmatch(token):
        return True
    return not special and _TAG.fullmatch(token) is not None
