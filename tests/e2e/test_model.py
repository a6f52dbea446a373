"""What can be asked of the model besides answers, as OpenAI's own client and vLLM's paths have it."""

import httpx2
import openai
import pytest


@pytest.fixture(scope="module")
def post(site, chat):
    def ask(path, body):
        headers = {"authorization": f"Bearer {chat.api_key}"}
        return httpx2.post(f"{site.url}{path}", json=body, headers=headers, timeout=240)

    return ask


def test_model_is_found_by_its_name_and_no_other(chat):
    (listed,) = chat.models.list().data
    assert chat.models.retrieve(listed.id) == listed

    with pytest.raises(openai.NotFoundError) as missing:
        chat.models.retrieve("gpt/none")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    assert "gpt/none" in str(missing.value)


@pytest.mark.parametrize("base", ["", "/", "/v1/", "//v1//", "/v1/v1"])
def test_base_address_may_be_spelled_in_several_ways(site, chat, base):
    client = chat.with_options(base_url=f"{site.url}{base}")
    answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}], max_tokens=1)

    assert answer.choices[0].finish_reason == "length"
    assert client.models.list().data == chat.models.list().data


def test_text_is_cut_into_ids_and_put_together_again_its_markers_being_text_unless_asked(post, model_map):
    text = "Hi <|im_end|> there"
    plain = post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
    special = post("/tokenize", {"prompt": text, "add_special_tokens": True}).json()
    end = model_map.special_tokens["<|im_end|>"]

    assert plain["tokens"] == model_map.encode(text)
    assert end not in plain["tokens"]
    assert end in special["tokens"]
    assert special["token_strs"] is None
    assert "".join(plain["token_strs"]) == text
    assert plain["count"] == len(plain["tokens"])
    assert post("/detokenize", {"tokens": plain["tokens"]}).json() == {"prompt": text}
    assert post("/detokenize", {"tokens": special["tokens"]}).json()["prompt"].endswith(text)


def test_messages_are_counted_as_the_prompt_that_they_come_to(chat, post):
    messages = [{"role": "user", "content": "Count: one two three"}]
    answer = chat.chat.completions.create(model="any", messages=messages, tool_choice="none", max_tokens=1)

    assert post("/tokenize", {"messages": messages}).json()["count"] == answer.usage.prompt_tokens


@pytest.mark.parametrize(
    "more",
    [
        {"continue_final_message": True},
        {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"},
        {"gateway_tools": "none"},
    ],
)
def test_ids_of_messages_are_those_that_a_chat_would_begin_with(chat, post, more):
    messages = [{"role": "user", "content": "Count:"}, {"role": "assistant", "content": "One, two,"}]
    body = {"model": "any", "messages": messages, **more}
    answer = post("/v1/chat/completions", {**body, "max_tokens": 1, "return_token_ids": True}).json()

    assert post("/tokenize", body).json()["tokens"] == answer["prompt_token_ids"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"prompt": "a" * 3_000_000}, "prompt"),
        ("/detokenize", {"tokens": [4_000_000_000]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0"),
        ("/detokenize", {"tokens": []}, "tokens"),
        ("/v1/embeddings", {"input": ""}, "input"),
        ("/v1/embeddings", {"input": [[4_000_000_000]]}, "input"),
    ],
)
def test_what_can_not_be_is_refused_by_name(post, path, body, param):
    refused = post(path, body)

    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param


@pytest.mark.parametrize("text", ["a cat", ["a cat", "a dog"], [1, 2], [[1, 2], [3]]])
def test_engine_that_serves_no_vectors_says_so(post, text):
    refused = post("/v1/embeddings", {"input": text, "model": "any"})

    assert refused.status_code == 501
    assert "embedding" in refused.json()["error"]["message"]


def test_each_request_has_an_id_whatever_becomes_of_it(chat, post):
    answers = [post("/tokenize", {"prompt": "a"}), post("/tokenize", {}), post("/v1/chat/completions", {})]
    streamed = chat.chat.completions.with_raw_response.create(
        model="any", messages=[{"role": "user", "content": "Hi"}], max_tokens=1, stream=True
    )
    ids = [answer.headers["x-request-id"] for answer in (*answers, streamed)]

    assert all(each.startswith("req_") for each in ids)
    assert len(set(ids)) == 4
