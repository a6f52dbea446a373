"""Fields of chats on the real model, by OpenAI's own client: several answers, probabilities, answers that go on."""

import math

import openai
import pytest

COUNT = [{"role": "user", "content": "Count: one two three"}]
ASKED = {"model": "any", "messages": COUNT, "seed": 1, "extra_body": {"gateway_tools": "none"}}
GREEDY = {**ASKED, "temperature": 0}
# Of few likely ids: answers that are made at the same time round otherwise, which decides between ids that are close.
# It does so seldom: of several seeds one shows that draws are the same.
DRAWN = {**ASKED, "temperature": 1.5, "max_tokens": 8, "extra_body": {"gateway_tools": "none", "top_k": 3}}
SEEDS = range(1, 5)


def texts_of(answer):
    return [choice.message.content for choice in answer.choices]


def test_several_answers_have_indexes_and_count_their_prompt_once(chat):
    one = chat.chat.completions.create(**DRAWN)
    three = chat.chat.completions.create(n=3, **DRAWN)

    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert len(set(texts_of(three))) == 3
    assert three.usage.prompt_tokens == one.usage.prompt_tokens
    assert three.usage.completion_tokens > 2 * one.usage.completion_tokens
    assert len(three.codec["choices"]) == 2


def test_first_of_several_answers_is_drawn_as_the_only_one_is(chat):
    def is_drawn_alike(seed):
        asked = {**DRAWN, "seed": seed}
        # A prompt that is processed whole rounds otherwise than one that is there.
        chat.chat.completions.create(**asked)
        (alone,) = texts_of(chat.chat.completions.create(**asked))
        return texts_of(chat.chat.completions.create(n=3, **asked))[0] == alone

    assert any(map(is_drawn_alike, SEEDS))


@pytest.mark.parametrize("usage", [False, True])
def test_streamed_answers_say_what_the_whole_ones_say(chat, usage):
    options = {"stream_options": {"include_usage": True}} if usage else {}
    for seed in SEEDS:
        asked = {**DRAWN, "n": 2, "seed": seed}
        chat.chat.completions.create(**asked)
        whole = chat.chat.completions.create(**asked)
        chunks = list(chat.chat.completions.create(stream=True, **options, **asked))
        texts = ["", ""]
        for chunk in chunks:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        if texts == texts_of(whole):
            break

    assert texts == texts_of(whole)
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert bool(chunks[-1].choices) != usage


def test_probabilities_are_those_of_the_ids_of_the_content(chat, model_map):
    asked = {**GREEDY, "max_tokens": 6}
    asked["extra_body"] = {**asked["extra_body"], "return_token_ids": True}
    plain = chat.chat.completions.create(**asked)
    told = chat.chat.completions.create(logprobs=True, top_logprobs=3, **asked)
    streamed = chat.chat.completions.create(logprobs=True, top_logprobs=3, stream=True, **asked)
    tokens = told.choices[0].logprobs.content
    pieces = [choice.logprobs.content for chunk in streamed for choice in chunk.choices if choice.logprobs]

    assert plain.choices[0].logprobs is None
    assert plain.choices[0].token_ids == told.choices[0].token_ids
    assert [bytes(token.bytes) for token in tokens] == [*map(model_map.token_bytes, told.choices[0].token_ids)]
    for token in tokens:
        best, *others = token.top_logprobs
        assert len(others) == 2
        # Greedy: the likeliest is the one that was taken.
        assert best.token == token.token
        assert math.isclose(best.logprob, token.logprob, abs_tol=1e-3)
        assert all(best.logprob >= other.logprob for other in others)
    assert [token.token for piece in pieces for token in piece] == [token.token for token in tokens]


def test_bias_keeps_an_id_out(chat):
    asked = {**GREEDY, "max_tokens": 1}
    asked["extra_body"] = {**asked["extra_body"], "return_token_ids": True}
    (first,) = chat.chat.completions.create(**asked).choices[0].token_ids
    (other,) = chat.chat.completions.create(logit_bias={str(first): -100}, **asked).choices[0].token_ids

    assert other != first


def test_answer_goes_on_with_the_last_message(chat, model_map):
    begun = "One, two,"
    asked = {**GREEDY, "messages": [*COUNT, {"role": "assistant", "content": begun}], "max_tokens": 5}
    ids = {"gateway_tools": "none", "return_token_ids": True}
    asked["extra_body"] = {**ids, "continue_final_message": True, "add_generation_prompt": False}
    answer = chat.chat.completions.create(**asked)
    plain = chat.chat.completions.create(**{**GREEDY, "max_tokens": 1, "extra_body": ids})

    assert answer.prompt_token_ids == [*plain.prompt_token_ids, *model_map.encode(begun)]
    assert not answer.choices[0].message.content.startswith(begun)
    assert answer.usage.completion_tokens == 5


@pytest.mark.parametrize("messages", [COUNT, [{"role": "assistant", "content": "One"}]])
def test_there_must_be_a_last_message_to_go_on_with(chat, messages):
    with pytest.raises(openai.BadRequestError) as refused:
        chat.chat.completions.create(**{**GREEDY, "messages": messages, "extra_body": {"continue_final_message": True}})

    assert refused.value.param == "continue_final_message"


def test_options_of_no_effect_are_named_and_one_that_could_do_harm_is_refused(chat):
    answer = chat.chat.completions.create(reasoning_effort="low", user="me", max_tokens=1, **GREEDY)
    asked = {**GREEDY, "extra_body": {"chat_template_kwargs": {"role": "<|im_start|>"}}}
    with pytest.raises(openai.BadRequestError) as refused:
        chat.chat.completions.create(**asked)

    assert answer.codec["ignored"] == ["user", "reasoning_effort"]
    assert refused.value.param == "chat_template_kwargs"
