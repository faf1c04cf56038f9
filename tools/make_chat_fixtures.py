#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers renders with chat templates: tests/token/chat.json, and with those of tests/token/operations.json; the
ids that it makes of conversations: tests/token/chat/NAME (a folder with a small tokenizer, those of tests/token/fixtures with
special tokens added), ids.json.

    tools/make_chat_fixtures.py [CONVERSATIONS]      for each template; 25 without

Needs transformers and jinja2. The templates are written for this file, after the formats of the models that they are named for;
they use every tag, filter, test and method that those models' own templates use. A case is the variables and the text, or
the message of raise_exception.
"""
import datetime
import json
import os
import random
import sys

from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import _compile_jinja_template

TEMPLATES = {
    "llama2": """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}\
{% else %}{% set rest = messages %}{% set system = false %}{% endif %}{% for message in rest %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must take turns: user, assistant') }}{% endif %}\
{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}\
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}\
{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "llama3": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%Y") %}
    {%- else %}
        {%- set date_string = "1 Jan 2025" %}
    {%- endif %}
{%- endif %}
{%- if tools is not defined %}{% set tools = none %}{% endif -%}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Tools:\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is defined and tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.function.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" and message.tool_calls is not defined %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message.tool_calls is defined %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {{- '}' ~ ("]" + eos_token if loop.last else ", ") }}
        {%- endfor %}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + "}[/TOOL_RESULTS]" }}
    {%- endif %}
{%- endfor %}
""",
    "qwen3": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<r>\\n' }}
        {{- content }}
        {{- '\\n</r>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    "deepseek": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}\
{% set ns = namespace(is_first=true, system='', is_tool=false) %}{%- for message in messages %}{%- if message['role'] == 'system' %}\
{%- if ns.is_first %}{% set ns.system = ns.system + message['content'] %}{% set ns.is_first = false %}\
{%- else %}{% set ns.system = ns.system + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}\
{{ bos_token }}{{ ns.system }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}\
{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message %}\
{%- for tool in message['tool_calls'] %}{%- if not loop.first %}{{'\\n'}}{%- endif %}\
{{'<｜call｜>' + tool['function']['name'] + '\\n```json\\n' + tool['function']['arguments']|tojson + '\\n```'}}{%- endfor %}{{ eos_token }}{%- endif %}\
{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{% set content = message['content'] %}\
{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}\
{{'<｜Assistant｜>' + content + eos_token}}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}\
{{'\\n<｜result｜>' ~ message['content']}}{%- endif %}{%- endfor -%}\
{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}""",
    "gpt-oss": """{#-
  a comment over
  two lines -#}
{%- macro render_type(spec, required=false) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}{{ render_type(spec['items']) }}[]{%- else -%}any[]{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {%- if spec.type | length > 1 -%}{{ spec.type | join(" | ") }}{%- else -%}{{ spec.type[0] }}{%- endif -%}
    {%- elif spec.enum -%}
        {{- '"' + spec.enum|join('" | "') + '"' -}}
    {%- elif spec.type == "object" -%}
        {{- "{\\n" -}}
        {%- for name, sub in spec.properties.items() -%}
            {{- name -}}
            {%- if name not in (spec.required or []) -%}{{- "?" }}{%- endif -%}
            {{- ": " -}}{{- render_type(sub) }}
            {%- if not loop.last -%},{%- endif %}
        {%- endfor -%}
        {{- "}" -}}
    {%- elif spec.type in ["integer", "number"] -%}number
    {%- else -%}{{ spec.type|default("any") }}{%- endif -%}
    {%- if required %}!{% endif -%}
{%- endmacro -%}
{%- set model_identity = model_identity if model_identity is defined else "You are a model." %}
{{- "<|start|>system<|message|>" ~ model_identity ~ "\\nReasoning: " + (reasoning_effort | default("medium")) + "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set developer_message = messages[0].content %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set developer_message = "" %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if developer_message or tools %}
    {{- "<|start|>developer<|message|>" + developer_message }}
    {%- if tools -%}
        {%- for tool in tools %}
            {%- set function = tool.function %}
            {{- "\\n// " + function.description|default("none", true) | replace("\\n", " ") + "\\ntype " + function.name + " = (_: " }}
            {{- render_type(function.parameters, required=true) + ") => any;" }}
        {%- endfor %}
    {%- endif -%}
    {{- "<|end|>" }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "tool_calls" in message %}
            {%- set tool_call = message.tool_calls[0].function %}
            {%- set last_tool_call.name = tool_call.name %}
            {{- "<|start|>assistant to=functions." + tool_call.name + "<|message|>" + (tool_call.arguments|tojson) + "<|call|>" }}
        {%- elif loop.last and not add_generation_prompt %}
            {{- "<|start|>assistant<|channel|>final<|message|>" }}{% generation %}{{ message.content + "<|return|>" }}{% endgeneration %}
        {%- else %}
            {%- set last_tool_call.name = none %}
            {{- "<|start|>assistant<|channel|>final<|message|>" }}{% generation %}{{ message.content + "<|end|>" }}{% endgeneration %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}
            {{- raise_exception("a result without a call") }}
        {%- endif %}
        {{- "<|start|>functions." + last_tool_call.name + "<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|start|>assistant
{%- endif -%}
""",
    "odds and ends": """{% for m in messages %}
  {% if loop.first %}first {% endif +%}
{{ loop.index }}/{{ loop.length }} {{ loop.revindex }} {{ m.role|upper }} {{ (m.missing or m.role ~ ' of all')|title }} {{ m.role|capitalize ~ 1.5 }}
    {# gone #}
{% if loop.index > 3 %}{% break %}{% endif %}
{% if loop.index is odd %}{% continue %}{% endif %}
{{ loop.previtem.role if loop.previtem is defined else '-' }}
{% else %}
nothing
{% endfor %}
{% set text %}a {{ messages|length }} b{% endset %}{{ text }} {{ -3 // 2 }} {{ -3 % 5 }} {{ 7 / 2 }} {{ 2 ** 5 }} {{ 1.0 }} {{ 1e3 is defined }}
{{ [1, 'two', none, true, 2.5, {'k': "it's"}] }} {{ {'a': [1, 2], 'b': {}} | tojson(indent=2) }}
{{ messages | map(attribute='role') | join(', ') }} {{ messages | map(attribute='role') | unique | list }} {{ [3, 1, 2] | sort | reverse | list }}
{{ 'abc'[::-1] }} {{ 'abc'[1] }} {{ 'abc'[-2:] }} {{ range(5)|list }} {{ range(4, 0, -2)|list }} {{ 'a,b,,c'.split(',') }} {{ ' x  y '.split() }}
{{ 'x' in 'xyz' }} {{ 'q' not in ['q'] }} {{ 1 < 2 < 3 }} {{ not 1 == 2 }} {{ 'a' ~ 1 ~ none ~ true }} {{ missing|default('d') }} {{ missing }}
{{ messages[0].get('nope', 'other') }} {{ messages[0].keys()|list }} {{ messages|rejectattr('role', 'in', ['user', 'tool'])|map(attribute='role')|list }}
{{ 'A b'.lower() }} {{ 'line one\\nline two'|indent(2) }} {{ '%s' }} {{ "tab\\tquote\\"" }} {{ '  pad'|trim|length }} {{ 'été'|length }} {{ 'été'[0] }}
{{- ' joined' -}}
   end""",
}

WORDS = "alpha beta, gamma\n delta it's \"so\" <b> é ü 漢字 🙂 tab\there x=1 {brace} 100% \\slash </think>done <think>".split(" ")
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Tells the\nweather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                                         "unit": {"enum": ["C", "F"]}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["city"]}}}, {"type": "function", "function": {
            "name": "add", "description": "", "parameters": {"type": "object", "properties": {"a": {"type": ["number", "null"]}}}}}]


def words(r):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(0, 6)))


def conversation(r):
    messages = [{"role": "system", "content": words(r)}] if r.random() < 0.5 else []
    for _ in range(r.randint(1, 3)):
        messages.append({"role": "user", "content": words(r)})
        if r.random() < 0.2:
            call = {"name": "weather", "arguments": {"city": words(r), "days": r.randint(0, 9), "x": [1.5, None, True]}}
            messages.append({"role": "assistant", "tool_calls": [{"type": "function", "function": call}]})
            messages.append({"role": "tool", "content": words(r)})
        if r.random() < 0.9:
            messages.append({"role": "assistant", "content": words(r)})
    variables = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": r.random() < 0.5}
    if r.random() < 0.3:
        variables["tools"] = TOOLS[:r.randint(1, 2)]
    if r.random() < 0.2:
        variables["enable_thinking"] = False
    if r.random() < 0.8:
        variables["date_string"] = "26 Jul 2024"
    if r.random() < 0.05:
        variables["messages"].reverse()
    return variables


def render(template, variables):
    try:
        return {"text": _compile_jinja_template(template).render(**variables)}
    except Exception as e:
        return {"error": str(e)}


def main(count):
    out = []
    for name, template in TEMPLATES.items():
        r = random.Random(name)
        cases = []
        while len(cases) < count:
            variables = conversation(r)
            if name == "llama3" and "date_string" not in variables:
                variables["date_string"] = "x"  # the year is another one tomorrow
            cases.append({"variables": variables, **render(template, variables)})
        out.append({"name": name, "template": template, "cases": cases})
        print(name, sum("text" in c for c in cases), "of", len(cases), "render", [c["error"] for c in cases if "error" in c][:2])
    path = os.environ.get("OUT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "token", "chat.json")
    with open(path, "w") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def operations():
    """tests/token/operations.json: variables, and pairs of a template and its text; the texts are made again"""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "token", "operations.json")
    with open(path) as f:
        all = json.load(f)

    def now(format):
        return datetime.datetime.fromtimestamp(1700000000, datetime.timezone.utc).strftime(format)

    for case in all["cases"]:
        case[1] = _compile_jinja_template(case[0]).render(**all["variables"], strftime_now=now)
    with open(path, "w") as f:
        json.dump(all, f, ensure_ascii=False, indent=1)
        f.write("\n")


TOKENIZERS = {
    "llama2": ("llama2.json", []),
    "llama3": ("llama3.json", ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    "mistral": ("llama2.json", ["[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]",
                                "[/TOOL_RESULTS]"]),
    "qwen3": ("qwen2.json", ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]),
    "deepseek": ("deepseek.json", ["<｜User｜>", "<｜Assistant｜>"]),
    "gpt-oss": ("o200k.json", ["<|start|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>"]),
}


def make_folder(folder, name):
    file, special = TOKENIZERS[name]
    with open(os.path.normpath(os.path.join(folder, "..", "..", "fixtures", file))) as f:
        tokenizer = json.load(f)
    first = 1 + max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])])
    for i, text in enumerate(special):
        tokenizer["added_tokens"].append({"id": first + i, "content": text, "single_word": False, "lstrip": False,
                                          "rstrip": False, "normalized": False, "special": True})
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATES[name]}, f,
                  ensure_ascii=False, indent=1)
    made = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), bos_token="<s>", eos_token="</s>")
    made.chat_template = TEMPLATES[name]
    return made


def make_ids(here, name, count):
    """[variables, ids, mask of the answers where the template marks them]"""
    made = make_folder(os.path.join(here, name), name)
    r = random.Random(name + " ids")
    out = []
    while len(out) < count:
        variables = conversation(r)
        variables.setdefault("date_string", "x")
        for key in ("bos_token", "eos_token"):
            del variables[key]
        more = {k: v for k, v in variables.items() if k not in ("messages", "tools", "add_generation_prompt")}
        marks = "{% generation %}" in TEMPLATES[name]
        try:
            got = made.apply_chat_template(variables["messages"], tools=variables.get("tools"), tokenize=True, return_dict=True,
                                           add_generation_prompt=variables["add_generation_prompt"],
                                           return_assistant_tokens_mask=marks, **more)
        except Exception:
            continue
        out.append([variables, got["input_ids"], got["assistant_masks"] if marks else None])
    return out


def main_ids(count):
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "token", "chat")
    os.makedirs(here, exist_ok=True)
    with open(os.path.join(here, "ids.json"), "w") as f:
        json.dump({name: make_ids(here, name, count) for name in TOKENIZERS}, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


main(int(sys.argv[1]) if len(sys.argv) > 1 else 25)
operations()
main_ids(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
