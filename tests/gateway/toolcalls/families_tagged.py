"""The families whose calls are tags, Python or another syntax of their own, as their models write them."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.gateway.toolcalls.families import Family, Written, listed, words
from tests.gateway.toolcalls.strategies import json_values, tricky_text

_THINK = ("<think>", "</think>")
_identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
# Where a newline on both sides of a value is markup, a value that begins with one can't be told.
_strings = st.dictionaries(words, tricky_text.filter(lambda text: not text.startswith("\n")), max_size=3)
# Where no schema says what a value is, a text that is JSON is not a string.
_unlike_json = st.dictionaries(
    words,
    tricky_text.map(lambda text: f"x{text}") | json_values.filter(lambda value: not isinstance(value, str)),
    max_size=3,
)
_keyed = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | tricky_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def _tags(before: str, after: str, opener: str, closer: str) -> Callable[[Written], str]:
    """Write a call with a tag for each argument: `{key}` and `{string}` stand in `before`, `{name}` in `opener`."""

    def one(call: Written) -> str:
        given: dict[str, Any] = json.loads(call.given)
        arguments = [
            before.format(key=key, string=json.dumps(isinstance(value, str)))
            + (value if isinstance(value, str) else json.dumps(value))
            + after
            for key, value in given.items()
        ]
        return opener.format(name=call.name) + "".join(arguments) + closer

    return one


def _python(call: Written) -> str:
    given: dict[str, Any] = json.loads(call.given)
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


def _gemma_value(value: Any, quote: str) -> str:
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case dict():
            return f"{{{','.join(f'{key}:{_gemma_value(inner, quote)}' for key, inner in value.items())}}}"
        case list():
            return f"[{','.join(_gemma_value(inner, quote) for inner in value)}]"
        case _:
            return json.dumps(value)


def _gemma(call: Written) -> str:
    arguments = _gemma_value(json.loads(call.given), '<|"|>')
    return f"<|tool_call>call:{call.name}{arguments}<tool_call|>"


def _function_gemma(call: Written) -> str:
    arguments = _gemma_value(json.loads(call.given), "<escape>")
    return f"<start_function_call>call:{call.name}{arguments}<end_function_call>"


def _minicpm5(call: Written) -> str:
    def spelled(value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value)
        return f"<![CDATA[{text}]]>" if set("<&\n") & set(text) else text

    arguments = [f'<param name="{key}">{spelled(value)}</param>' for key, value in json.loads(call.given).items()]
    return f'<function name="{call.name}">{"".join(arguments)}</function>'


_M3 = "]<]minimax[>["


def _element(key: str, value: Any) -> str:
    match value:
        case dict():
            inside = "".join(_element(inner, given) for inner, given in value.items())
        case list():
            inside = "".join(_element("item", given) for given in value)
        case _:
            inside = value
    return f"{_M3}<{key}>{inside}{_M3}</{key}>"


def _minimax_m3(call: Written) -> str:
    arguments = "".join(_element(key, value) for key, value in json.loads(call.given).items())
    return f'{_M3}<invoke name="{call.name}">{arguments}{_M3}</invoke>\n'


# Without a schema every text is a string, and an object without members could be an empty one.
_elements = st.dictionaries(
    words,
    st.recursive(
        tricky_text,
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3)
            | st.dictionaries(words.filter(lambda key: key != "item"), inner, min_size=1, max_size=3)
        ),
        max_leaves=6,
    ),
    max_size=3,
)


def _harmony(call: Written) -> str:
    return f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>{call.given}<|call|>"


def _tagged(
    name: str,
    write: Callable[..., str],
    markup: tuple[str, ...],
    arguments: st.SearchStrategy[dict[str, Any]] = _strings,
    think: tuple[str, str] = _THINK,
) -> Family:
    return Family(name, write, (*markup, *think), think, names=words, arguments=arguments, verbatim=False)


_TOOL_CALL = ("<tool_call>", "</tool_call>")
_QWEN = _tags(
    "<parameter={key}>\n", "\n</parameter>\n", "<tool_call>\n<function={name}>\n", "</function>\n</tool_call>"
)
_MIMO = _tags("<parameter={key}>", "</parameter>", "<tool_call><function={name}>", "</function></tool_call>")
_SEED = _tags(
    "<parameter={key}>", "</parameter>\n", "<seed:tool_call>\n<function={name}>\n", "</function>\n</seed:tool_call>"
)
_GLM45 = _tags("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>\n", "<tool_call>{name}\n", "</tool_call>")
_GLM47 = _tags("<arg_key>{key}</arg_key><arg_value>", "</arg_value>", "<tool_call>{name}", "</tool_call>")
_MINIMAX = _tags('<parameter name="{key}">', "</parameter>\n", '<invoke name="{name}">\n', "</invoke>\n")
_MUSE = _tags(
    '<atem:parameter name="{key}">',
    "</atem:parameter>\n",
    '<|start|>assistant to={name}<|message|><atem:function_calls>\n<atem:invoke name="{name}">\n',
    "</atem:invoke>\n</atem:function_calls><|eom|>",
)
_IFM = _tags(
    "<ifm|arg_key>{key}</ifm|arg_key>\n<ifm|arg_value>",
    "</ifm|arg_value>\n",
    "<ifm|tool_call>{name}\n",
    "</ifm|tool_call>\n",
)
_DSML = _tags(
    '<｜DSML｜parameter name="{key}" string="{string}">',
    "</｜DSML｜parameter>\n",
    '<｜DSML｜invoke name="{name}">\n',
    "</｜DSML｜invoke>\n",
)


_HUNYUAN = _tags(
    "<arg_key:opensource>{key}</arg_key:opensource>\n<arg_value:opensource>",
    "</arg_value:opensource>\n",
    "<tool_call:opensource>{name}<tool_sep:opensource>\n",
    "</tool_call:opensource>\n",
)
_STEP3 = _tags(
    '<steptml:parameter name="{key}">',
    "</steptml:parameter>",
    '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">',
    "</steptml:invoke><｜tool_call_end｜>",
)


_K3_TYPES = {
    "str": "string",
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "NoneType": "null",
    "list": "array",
    "dict": "object",
}


def _kimi_k3(call: Written) -> str:
    given: dict[str, Any] = json.loads(call.given)
    arguments = [
        f'<|open|>argument key="{key}" type="{_K3_TYPES[type(value).__name__]}"<|sep|>'
        f"{value if isinstance(value, str) else json.dumps(value)}<|close|>argument<|sep|>"
        for key, value in given.items()
    ]
    return f'<|open|>call tool="{call.name}" index="1"<|sep|>{"".join(arguments)}<|close|>call<|sep|>'


def _dsml(name: str, section: str) -> Family:
    sections = ("function_calls", "tool_calls", "toolcalls", "calls", " calls", "tool")
    markup = ("<｜DSML｜invoke name=", *(f"<｜DSML｜{other}>" for other in sections))
    write = listed(f"\n\n<｜DSML｜{section}>\n", "", f"</｜DSML｜{section}>", _DSML)
    return _tagged(name, write, markup, st.dictionaries(words, json_values, max_size=3))


TAGGED_FAMILIES = (
    _dsml("deepseek_v32", "function_calls"),
    _dsml("deepseek_v4", "tool_calls"),
    _tagged(
        "gemma4",
        listed("", "", "", _gemma),
        ("<|tool_call>", "<tool_call|>", "<|tool_response>", "<turn|>"),
        st.dictionaries(words, _keyed, max_size=3),
        ("<|channel>", "<channel|>"),
    ),
    Family(
        "function_gemma",
        listed("", "", "", _function_gemma),
        ("<start_function_call>", "<end_function_call>", "<start_function_response>", "<end_of_turn>"),
        names=words,
        arguments=st.dictionaries(words, _keyed, max_size=3),
        verbatim=False,
    ),
    _tagged("glm45", listed("", "\n", "", _GLM45), (*_TOOL_CALL, "<|role_end|>"), _unlike_json),
    _tagged("glm47", listed("", "", "", _GLM47), (*_TOOL_CALL, "<|role_end|>"), _unlike_json),
    Family(
        "harmony",
        listed("", "<|start|>assistant", "", _harmony),
        ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>"),
        ("<|channel|>analysis<|message|>", "<|end|>"),
        names=words,
        answer="<|start|>assistant<|channel|>final<|message|>",
    ),
    _tagged(
        "lfm2",
        listed("<|tool_call_start|>[", ", ", "]<|tool_call_end|>", _python),
        ("<|tool_call_start|>", "<|tool_call_end|>", "["),
        st.dictionaries(_identifiers, json_values, max_size=3),
    ),
    _tagged("mimo", listed("", "\n", "", _MIMO), (*_TOOL_CALL, "<function="), _strings),
    _tagged(
        "minimax_m2",
        listed("<minimax:tool_call>\n", "", "</minimax:tool_call>", _MINIMAX),
        ("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    Family(
        "minimax_m3",
        listed(f"{_M3}<tool_call>\n", "", f"{_M3}</tool_call>", _minimax_m3),
        (f"{_M3}<tool_call>", f"{_M3}</tool_call>", "<mm:think>", "</mm:think>"),
        ("<mm:think>", "</mm:think>"),
        names=words,
        arguments=_elements,
        verbatim=False,
        data=("<mm:think>", "</mm:think>", "<tool_call>"),
    ),
    _tagged("dots", listed("<dots_function_call>\n", "", "</dots_function_call>", _MINIMAX), ("<dots_function_call>",)),
    Family(
        "muse_glimmer",
        listed("", "", "", _MUSE),
        ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>", "to="),
        (" to=self<|message|>", "<|eom|>"),
        names=words,
        arguments=_strings,
        answer="<|start|>assistant to=user<|message|>",
        verbatim=False,
        data=("<atem:function_calls>", "<|start|>"),
    ),
    _tagged(
        "k2_horizon",
        listed("<ifm|tool_calls>\n", "", "</ifm|tool_calls>", _IFM),
        ("<ifm|tool_calls>", "<|ifm|im_end|>", "<ifm|think>", "</ifm|think>"),
        _unlike_json,
        ("<ifm|think>", "</ifm|think>"),
    ),
    _tagged("minicpm5", listed("", "\n", "", _minicpm5), ("<function", "</function>", "</param>"), _strings),
    _tagged(
        "olmo_3",
        listed("<function_calls>", "\n", "</function_calls>", _python),
        ("<function_calls>", "</function_calls>"),
        st.dictionaries(_identifiers, json_values, max_size=3),
    ),
    Family(
        "kimi_k3",
        listed("<|open|>tools<|sep|>", "", "<|close|>tools<|sep|>", _kimi_k3),
        tuple(
            f"<|{verb}|>{part}<|sep|>"
            for verb in ("open", "close")
            for part in ("tools", "response", "think", "message")
        ),
        ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        names=words,
        arguments=st.dictionaries(words, json_values, max_size=3),
        answer="<|open|>response<|sep|>",
        verbatim=False,
    ),
    Family(
        "pythonic",
        listed("[", ", ", "]", _python),
        ("[", "<|python_start|>"),
        names=words,
        arguments=st.dictionaries(_identifiers, json_values, max_size=3),
        verbatim=False,
        begins=True,
    ),
    _tagged(
        "qwen3_coder",
        listed("", "\n", "", _QWEN),
        (*_TOOL_CALL, "<function=", "</function>"),
        st.dictionaries(words, tricky_text, max_size=3),
    ),
    _tagged(
        "seed_oss",
        listed("", "\n", "", _SEED),
        ("<seed:tool_call>", "</seed:tool_call>", "<function="),
        think=("<seed:think>", "</seed:think>"),
    ),
    _tagged(
        "hy_v3",
        listed("<tool_calls:opensource>\n", "", "</tool_calls:opensource>", _HUNYUAN),
        ("<tool_calls:opensource>", "<tool_calls>", *_THINK),
        _unlike_json,
        ("<think:opensource>", "</think:opensource>"),
    ),
    _tagged("step3", listed("<｜tool_calls_begin｜>", "", "<｜tool_calls_end｜>", _STEP3), ("<｜tool_calls_begin｜>",)),
)
