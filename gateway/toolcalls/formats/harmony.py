"""gpt-oss and LLM-jp 4.1: messages in channels; a recipient in the header makes a message a call.

Both spellings of the header are read, with the recipient before or after the channel, and damaged headers by what they
mention. A preamble in the commentary channel is content; each of several calls is a separate message. Messages to the
tools that the model was trained with (`python`, `container.exec`) are neither calls nor content, unless the request
offers such a tool or the message is a JSON object.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.channels import Harmony, HarmonyCall
from gateway.toolcalls.nodes.regions import CallNode
from gateway.toolcalls.nodes.series import Series

HARMONY = Format(
    name="harmony",
    body=Harmony(),
    calls=Series(CallNode(HarmonyCall()), "<|end|><|start|>assistant"),
    shape='<|channel|>commentary to=functions.TOOL <|constrain|>json<|message|>{"KEY": "VALUE"}<|call|>',
    answer="<|channel|>final<|message|>",
    template_has=("<|channel|>", "<|message|>"),
)
