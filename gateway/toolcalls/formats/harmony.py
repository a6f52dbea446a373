"""gpt-oss and LLM-jp 4.1: messages in channels; a recipient in a header makes a call of a message.

Both spellings of the header are read, the recipient before the channel and behind it, and damaged headers by what they
mention. A preamble in the commentary channel is content; several calls follow one another as messages of their own.
Messages to the tools that the model was trained with (`python`, `container.exec`) are no calls and no content, unless
the request offers such a tool or an object is sent.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.channels import Harmony, HarmonyCall
from gateway.toolcalls.nodes.regions import Call
from gateway.toolcalls.nodes.series import Series

HARMONY = Format(
    name="harmony",
    body=Harmony(),
    calls=Series(Call(HarmonyCall()), "<|end|><|start|>assistant"),
    shape='<|channel|>commentary to=functions.TOOL <|constrain|>json<|message|>{"KEY": "VALUE"}<|call|>',
    answer="<|channel|>final<|message|>",
    template_has=("<|channel|>", "<|message|>"),
)
