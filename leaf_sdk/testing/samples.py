"""Texts on which tokenizers differ, by kind: a new map is compared with its reference on them.

Code, prose in twenty scripts, blanks, emoji, control characters, long words, random Unicode, and pieces of these joined
together. Deterministic: a count gives the same samples on every machine. Contains no model's markers. Used by the
tests, by `codec-leaf map verify` and by the benchmark of maps.
"""

import random
from collections.abc import Callable, Iterator

PROSE = (
    "The quick brown fox jumps over the lazy dog; they'll say it's 9 o'clock, won't they? I'd've gone.",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy, ſtraße, ﬁn, Ærøskøbing.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Ґанок, їжак, ўсё.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ὅμηρος ᾠδή.",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם",
    "نصٌّ حكيمٌ له سرٌّ قاطعٌ وذو شأنٍ عظيم، مكتوبٌ على ثوبٍ أخضر ١٢٣",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। १२३",
    "আমি বাংলায় গান গাই, আমি বাংলার গান গাই। ৪৫৬",
    "யாமறிந்த மொழிகளிலே தமிழ்மொழி போல் இனிதாவது எங்கும் காணோம்",
    "తెలుగు భాష ద్రావిడ భాషా కుటుంబానికి చెందినది",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓",
    "ພາສາລາວ ເປັນພາສາທາງການ ຂອງປະເທດລາວ",
    "မြန်မာဘာသာစကားသည် မြန်မာနိုင်ငံ၏ ရုံးသုံးဘာသာ",
    "ភាសាខ្មែរ គឺជាភាសាផ្លូវការ នៃកម្ពុជា",
    "ყოველი ადამიანი იბადება თავისუფალი და თანასწორი",
    "Բոլոր մարդիկ ծնվում են ազատ ու հավասար",
    "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
    "天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。人人生而自由，在尊严和权利上一律平等。𠮷野家",
    "いろはにほへと ちりぬるを。カタカナとﾊﾝｶｸ、東京は２０２６年。々〆ヶ",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. ㄱㄴㄷ",
    "བོད་ཀྱི་སྐད་ཡིག ᠮᠣᠩᠭᠣᠯ ᓀᐦᐃᔭᐍᐏᐣ ᏣᎳᎩ ߒߞߏ 𐍈𐌰𐌿𐍂𐌰 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "Tiếng Việt có dấu: Ở đây trời đẹp quá. Ḥ ǰ ʾ e\u0301 n\u0303 o\u0308\u0323 \u212b \ufb01",
)
"""A sentence or two in each of more than twenty scripts."""
CODE = (
    "def f(x: int) -> dict[str, int]:\n    return {'x': x ** 2}  # square\n\n\nclass A(B):\n\tpass\n",
    'for (int i = 0; i < n; ++i) {\n\t\tprintf("%d\\n", a[i] >> 2 & 0xFFu);\r\n\t}\n',
    'SELECT * FROM "t" WHERE a<>b AND c::int >= 10 -- it\'s\n',
    '{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3, "at": "2026-11-21T14:37:05+01:00"}}',
    "<table>\n  <tr><td class='a'>1</td></tr>\n</table>&nbsp;<!-- x --><h1>T</h1><code>y</code>",
    "#!/bin/sh\nset -eu; [ -d \"$HOME/.x\" ] || mkdir -p ~/.x && echo $((1+2)) | sed 's/a\\+/b/g' >&2\n",
    "fn main() { let v: Vec<&'static str> = vec![\"a\"; 3]; println!(\"{:?}\", v); } // 'a 'S 'LL 'rE\n",
    "https://example.org/a/b.php?q=%C3%A9&r=1#frag user@example.org C:\\Temp\\x.txt ../../etc",
    "| a | b |\n|---|:-:|\n| 1 | **2** |\n\n```js\nlet x = `t${1}`;\n```\n\n- [ ] do\n> q\n",
    "1234567890 3.14159 1,000,000 0x1F -1.5e-7 ½ ² Ⅻ ٣٤ １２ 12345678901234567890 1a2b3c 10%",
)
"""Lines as programs and tools write them."""
_EMOJI = ("😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇨🇭", "❤️", "☺", "1️⃣", "🫱🏻‍🫲🏿", "🧑‍🚀", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "⚧️", "🤷🏽‍♀️", "©", "™", "〰️")
_BLANKS = (
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\x0b",
    "\x0c",
    "\x85",
    "\xa0",
    "\u2003",
    "\u2028",
    "\u3000",
    "\u200b",
    "▁",
)
_CONTROLS = [
    *map(chr, range(0x20)),
    "\x7f",
    *map(chr, range(0x80, 0xA0)),
    "\ufeff",
    "\u200d",
    "\u200e",
    "\u202e",
    "\ufffd",
    "\ufffe",
]
_RANGES = (
    *((0x20, 0x7F), (0xA0, 0x250), (0x250, 0x530), (0x530, 0x900), (0x900, 0x1100), (0x1100, 0x2000)),
    *((0x2000, 0x3000), (0x3000, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), (0x20000, 0x110000)),
)


def samples(count: int, *, seed: int = 1) -> Iterator[str]:
    """Yield `count` texts, the kinds taking turns; the first ones are the plain pieces of each kind."""
    rng = random.Random(seed)  # noqa: S311 - no secret depends on it
    fixed = ["", *PROSE, *CODE, *_EMOJI, *_BLANKS, *_CONTROLS]
    yield from fixed[:count]
    for number in range(count - len(fixed)):
        yield _KINDS[number % len(_KINDS)](rng)


def _prose(rng: random.Random) -> str:
    words = rng.choice(PROSE).split(" ")
    return rng.choice(("", " ")) + " ".join(rng.choices(words, k=rng.randrange(1, 20)))


def _code(rng: random.Random) -> str:
    lines = [line for text in rng.sample(CODE, 3) for line in text.splitlines(keepends=True)]
    return "".join(" " * rng.choice((0, 0, 1, 2, 3, 4, 8, 12)) + rng.choice(lines) for _ in range(rng.randrange(1, 8)))


def _blanks(rng: random.Random) -> str:
    return "".join(
        rng.choice(_BLANKS) * rng.randrange(1, 9) + rng.choice(("", "", "x", "é", "1", ".")) for _ in range(9)
    )


def _emoji(rng: random.Random) -> str:
    return "".join(rng.choice(_EMOJI) + rng.choice(("", "", " ", "a", "\ufe0f")) for _ in range(rng.randrange(1, 12)))


def _controls(rng: random.Random) -> str:
    return "".join(rng.choice(("a", "Zz", " ", "")) + rng.choice(_CONTROLS) for _ in range(rng.randrange(1, 20)))


def _long_words(rng: random.Random) -> str:
    part = rng.choice((*"a=-_.é中ก", "ab", "ana", "haha", "Supercalifragilistic", "ACGT", "0", "aA", "\u0301"))
    return rng.choice(("", "x", " ")) + part * rng.randrange(20, 200) + rng.choice(("", "y", "\n"))


def _random(rng: random.Random) -> str:
    return "".join(chr(rng.randrange(*rng.choice(_RANGES))) for _ in range(rng.randrange(1, 30)))


def _one_script(rng: random.Random) -> str:
    low = rng.randrange(0x20, 0x1FF00, 0x80)
    return "".join(_valid(rng.randrange(low, low + 0x100)) + rng.choice(("", "", "", " ")) for _ in range(30))


def _joints(rng: random.Random) -> str:
    return "".join(
        text[start : start + rng.randrange(1, 12)]
        for text in rng.choices((*PROSE, *CODE, *_EMOJI, *_BLANKS), k=rng.randrange(2, 8))
        for start in [rng.randrange(len(text))]
    )


def _valid(number: int) -> str:
    return chr(number) if not 0xD800 <= number < 0xE000 else "\ufffd"


_KINDS: tuple[Callable[[random.Random], str], ...] = (
    *(_prose, _code, _blanks, _emoji, _controls, _long_words, _random, _one_script, _joints),
)
