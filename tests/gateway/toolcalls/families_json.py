"""The families whose calls are JSON, as their models write them."""

from tests.gateway.toolcalls.families import Family, Written, an_object, listed, quoted, words

_THINK = ("<think>", "</think>")
_TOOL_CALLS = ("<tool_calls>", "</tool_calls>")


def _deepseek_v3(call: Written) -> str:
    return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n```json\n{call.given}\n```<｜tool▁call▁end｜>"


def _deepseek_v31(call: Written) -> str:
    return f"<｜tool▁call▁begin｜>{call.name}<｜tool▁sep｜>{call.given}<｜tool▁call▁end｜>"


def _kimi_id(call: Written) -> str:
    return f"functions.{call.name}:{int(call.id, 36)}"


def _kimi(call: Written) -> str:
    return f"<|tool_call_begin|>{_kimi_id(call)}<|tool_call_argument_begin|>{call.given}<|tool_call_end|>"


def _own_id(call: Written) -> str:
    return call.id


def _mistral_id(call: Written) -> str:
    return f"[TOOL_CALLS]{call.name}[CALL_ID]{call.id}[ARGS]{call.given}"


def _nemo(call: Written) -> str:
    return f'{{"name": {quoted(call.name)}, "arguments": {call.given}, "id": "{call.id}"}}'


def _cohere(call: Written) -> str:
    return f'{{"tool_call_id": "{call.id}", "tool_name": {quoted(call.name)}, "parameters": {call.given}}}'


def _solar(call: Written) -> str:
    return f"<|tool_call:begin|>{call.id}<|tool_call:name|>{call.name}<|tool_call:args|>{call.given}<|tool_call:end|>"


def _command_r_plus(call: Written) -> str:
    return an_object(call, "tool_name", "parameters")


_PLAMO_THINK = ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>")


def _inkling(call: Written) -> str:
    return f"<|message_model|>{call.name}<|content_invoke_tool_json|>{an_object(call, arguments='args')}<|end_message|>"


def _plamo(call: Written) -> str:
    name = f"<|plamo:begin_tool_name:plamo|>{call.name}<|plamo:end_tool_name:plamo|>"
    given = f"<|plamo:constrain|>json<|plamo:msg|>{call.given}<|plamo:end_tool_arguments:plamo|>"
    body = f"{name}<|plamo:begin_tool_arguments:plamo|>{given}"
    return f"<|plamo:begin_tool_request:plamo|>{body}<|plamo:end_tool_request:plamo|>"


def _miro(call: Written) -> str:
    head = f"<server_name>extras</server_name>\n<tool_name>{call.name}</tool_name>\n"
    return f"{head}<arguments>\n{call.given}\n</arguments>"


def _longcat(call: Written) -> str:
    return f"<longcat_tool_call>\n{an_object(call)}\n</longcat_tool_call>"


def _gigachat(call: Written) -> str:
    return f"<|message_sep|>\n\nfunction call<|role_sep|>\n{an_object(call)}"


def _internlm2(call: Written) -> str:
    return an_object(call, arguments="parameters")


_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>", *_THINK)
_OTHER_OPENERS = ("<｜tool_calls_begin｜>", "<｜tool calls begin｜>", "<｜tool\\_calls\\_begin｜>", "<｜tool▁calls｜>")
_KIMI = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_calls_section_end|>", *_THINK)
_MISTRAL = ("[TOOL_CALLS]", "[THINK]", "[/THINK]", *_THINK)
_COHERE_BLOCKS = ("<|START_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")

JSON_FAMILIES = (
    Family(
        "apertus",
        listed("<|tools_prefix|>[", ", ", "]<|tools_suffix|>", lambda call: f"{{{quoted(call.name)}: {call.given}}}"),
        ("<|tools_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>"),
        ("<|inner_prefix|>", "<|inner_suffix|>"),
    ),
    Family(
        "apriel",
        listed("\n<tool_calls>[", ", ", "]</tool_calls>"),
        (*_TOOL_CALLS, "[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", "Here are my reasoning steps:", "<thinking>",
         "</thinking>"),
        ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    ),
    Family(
        "command_r7b",
        listed("<|START_ACTION|>[\n    ", ",\n    ", "\n]<|END_ACTION|>", _cohere),
        (*_COHERE_BLOCKS, "<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        answer="<|START_RESPONSE|>",
        id_of=_own_id,
    ),
    Family(
        "deepseek_v3",
        listed("<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>", _deepseek_v3),
        (*_DEEPSEEK, *_OTHER_OPENERS),
        _THINK,
        names=words,
    ),
    Family(
        "deepseek_v31",
        listed("<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>", _deepseek_v31),
        _DEEPSEEK,
        _THINK,
        names=words,
    ),
    Family(
        "functionary_31",
        listed("", "", "", lambda call: f"<function={call.name}>{call.given}</function>"),
        ("<function=",),
        names=words,
    ),
    Family(
        "functionary_32",
        listed("", "", "", lambda call: f">>>{call.name}\n{call.given}"),
        (">>>",),
        names=words.filter(lambda name: name != "all"),
        answer="all\n",
    ),
    Family(
        "granite_3",
        listed("<|tool_call|>[", ", ", "]"),
        ("<|tool_call|>", "<tool_call>", "<response>", "</response>", "Here is my thought process:",
         "Here is my response:", "Here's my thought process:", "Here's my response:", "[", "{", *_THINK),
        _THINK,
        answer="<response>",
    ),
    Family("hunyuan", listed("<tool_calls>[", ", ", "]</tool_calls>"),
           (*_TOOL_CALLS, "<answer>", "</answer>", *_THINK), _THINK, answer="<answer>\n"),
    Family("jamba", listed("<tool_calls>[\n    ", ",\n    ", "\n]</tool_calls>"), (*_TOOL_CALLS, *_THINK), _THINK),
    Family("json", listed("", "\n", ""), ("{", "[", *_THINK), _THINK, begins=True),
    Family(
        "kimi_k2",
        listed("<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>", _kimi),
        (*_KIMI, "<|tool_call_section_begin|>", "<|tool_call_section_end|>"),
        _THINK,
        names=words,
        id_of=_kimi_id,
    ),
    Family(
        "llama_3",
        listed("", "; ", "", lambda call: an_object(call, arguments="parameters")),
        ("{", "<|python_tag|>"),
        begins=True,
    ),
    Family("minimax_m1", listed("<tool_calls>\n", "\n", "\n</tool_calls>"), (*_TOOL_CALLS, *_THINK), _THINK),
    Family(
        "mistral",
        listed("", "", "", lambda call: f"[TOOL_CALLS]{call.name}[ARGS]{call.given}"),
        _MISTRAL,
        ("[THINK]", "[/THINK]"),
        names=words,
    ),
    Family("mistral_nemo", listed("[TOOL_CALLS][", ", ", "]", _nemo), _MISTRAL, id_of=_own_id),
    Family("mistral_small", listed("", "", "", _mistral_id), _MISTRAL, names=words, id_of=_own_id),
    Family("nemotron_nano", listed("<TOOLCALL>[", ", ", "]</TOOLCALL>"), ("<TOOLCALL>", *_THINK), _THINK),
    Family(
        "phi_4_mini",
        listed("functools[", ", ", "]"),
        ("functools[", "<|tool_call|>"),
    ),
    *(
        Family(name, listed("", "\n", "", lambda call: f"<tool_call>\n{an_object(call)}\n</tool_call>"),
               ("<tool_call>", "</tool_call>", *_THINK), _THINK)
        for name in ("hermes", "generic")
    ),
    Family("command_r_plus", listed("Action:\n```json\n[\n    ", ",\n    ", "\n]\n```", _command_r_plus),
           ("Action:", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>")),
    Family("ernie45", listed("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>"),
           ("<tool_call>", "<response>", "</response>", *_THINK), _THINK, answer="<response>\n"),
    Family("gigachat3", listed("", "", "", _gigachat), ("<|message_sep|>", "<|function_call|>", "</s>")),
    Family("gigachat31", listed("", "", "", lambda call: f"<|function_call|>{an_object(call)}"),
           ("<|message_sep|>", "<|function_call|>", "</s>")),
    Family("granite_20b", listed("", "\n", "", lambda call: f"<function_call> {an_object(call)}"),
           ("<function_call>",)),
    Family(
        "inkling",
        listed("", "", "", _inkling),
        ("<|message_model|>", "<|end_message|>", "<|content_model_end_sampling|>", "<|content_thinking|>",
         "<|content_text|>", "<|content_invoke_tool_text|>", "<|content_tool_error|>", "<|content_invoke_tool_json|>"),
        ("<|content_thinking|>", "<|end_message|>"),
        names=words,
        answer="<|message_model|><|content_text|>",
    ),
    Family(
        "plamo3",
        listed("<|plamo:begin_tool_requests:plamo|>", "", "<|plamo:end_tool_requests:plamo|>", _plamo),
        ("<|plamo:begin_tool_requests:plamo|>", "<|plamo:tag|>", *_PLAMO_THINK),
        _PLAMO_THINK,
        names=words,
    ),
    Family(
        "miro_thinker",
        listed("<use_mcp_tool>\n", "\n", "\n</use_mcp_tool>", _miro),
        ("<use_mcp_tool>", "<tool_call>", *_THINK),
        _THINK,
        names=words,
    ),
    Family("nemotron_mini", listed("", " ", "", lambda call: f"<toolcall> {an_object(call)} </toolcall>"),
           ("<toolcall>",)),
    Family("internlm2", listed("<|action_start|><|plugin|>\n", "<|action_end|><|action_start|><|plugin|>\n",
                               "<|action_end|>", _internlm2), ("<|action_start|>", *_THINK), _THINK),
    Family("longcat", listed("", "\n", "", _longcat),
           ("<longcat_tool_call>", "<longcat_think>", "</longcat_think>"), ("<longcat_think>", "</longcat_think>")),
    Family(
        "solar_open",
        listed("<|tool_calls|>", "", "<|calls|>", _solar),
        ("<|tool_calls|>", "<|tool_call:begin|>", "<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>",
         "<|think|>"),
        ("<|think|>", "<|end|>"),
        names=words,
        answer="<|begin|>assistant<|content|>",
        id_of=_own_id,
    ),
)  # fmt: skip
