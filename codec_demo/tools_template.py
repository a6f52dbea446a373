"""A chat template with tools for the plain llama-server: the model's own has none. Renders what the gateway does."""

from typing import Final

TEMPLATE: Final = r"""
{%- if messages[0].role == 'system' %}{% set system = messages[0].content + '\n\n' %}{% set rest = messages[1:] %}
{%- else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{{- '<|im_start|>system\n' + system }}
{%- if tools %}
    {{- "You are a helpful assistant. You can call these tools:" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool.function | tojson }}{% endfor %}
    {{- "\n\nTo call a tool, write:\n<tool_call>\n" }}
    {{- "{\"name\": \"TOOL\", \"arguments\": {\"KEY\": \"VALUE\"}}\n</tool_call>\n" }}
    {{- "Answer in one short sentence from the tool's result." }}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- for message in rest %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.content %}{{- message.content }}{% endif %}
    {%- for call in message.tool_calls or [] %}
        {%- if message.content or not loop.first %}{{- '\n' }}{% endif %}
        {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
        {{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
"""
