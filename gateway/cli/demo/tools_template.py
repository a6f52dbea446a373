"""A chat template with tools, in the packaged model's own role marks. The model's own template has no tools."""

from typing import Final

TEMPLATE: Final = r"""
{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}{% set system = 'You are a helpful assistant.' %}{% set rest = messages %}{% endif %}
{{- '<|im_start|>system\n' + system }}
{%- if tools %}
    {{- "\n\n# Tools\n\nYou may call one or more functions. Their signatures:\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{% endfor %}
    {{- "\n</tools>\n\nFor each call write a JSON object within <tool_call></tool_call>:\n" }}
    {{- "<tool_call>\n{\"name\": <name>, \"arguments\": <arguments>}\n</tool_call>" }}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- for message in rest %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\n' + message.content }}{% endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
"""
