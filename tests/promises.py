"""What holds each sentence of the promises (SECURITY.md) and rules (docs/architecture.md): a table for people.

Left the sentence, word for word; right the tests that fail without it, or a word why there is none. `test_promises.py`
holds the table to the pages and to the tests that there are.
"""

# ruff: noqa: E501

from collections.abc import Mapping
from typing import Final

Held = tuple[str, ...] | str

SECURITY: Final[Mapping[str, Held]] = {
    "Foreign text never becomes a control token.": (
        "tests/gateway/engine/test_template.py::test_control_tokens_of_a_message_stay_text",
        "tests/gateway/engine/test_template.py::test_definitions_of_tools_can_not_spell_control_tokens",
        "tests/gateway/engine/test_template.py::test_keys_of_a_schema_can_not_complete_a_marker_that_the_template_begins",
        "tests/gateway/engine/test_template.py::test_arguments_of_earlier_calls_spell_no_control_token_however_they_are_escaped",
        "tests/gateway/engine/test_foreign_text.py::test_words_of_others_never_become_control_tokens",
        "tests/gateway/proxy/test_result_tokens.py::test_spelling_of_a_control_token_in_a_text_stays_ordinary_text",
    ),
    "Contents, names, descriptions, arguments and results, from users, tools and servers, reach the model as ordinary text wherever they stand in the prompt.": (
        "tests/gateway/engine/test_template.py::test_control_tokens_of_a_message_stay_text",
        "tests/gateway/engine/test_template.py::test_definitions_of_tools_can_not_spell_control_tokens",
        "tests/gateway/engine/test_template.py::test_keys_of_a_schema_can_not_complete_a_marker_that_the_template_begins",
        "tests/gateway/engine/test_template.py::test_arguments_of_earlier_calls_spell_no_control_token_however_they_are_escaped",
        "tests/gateway/engine/test_foreign_text.py::test_words_of_others_never_become_control_tokens",
        "tests/gateway/proxy/test_result_tokens.py::test_spelling_of_a_control_token_in_a_text_stays_ordinary_text",
    ),
    'Ids that a tool sends are used only if they belong to an accepted map, none of them is special, and, unless you set `tokens.verify = "trust"`, they decode to exactly their text.': (
        "tests/gateway/proxy/test_result_tokens.py::test_ids_of_a_map_that_is_not_accepted_are_refused_and_counted_as_a_mismatch",
        "tests/gateway/proxy/test_result_tokens.py::test_id_that_is_special_only_in_the_payloads_map_is_refused",
        "tests/gateway/proxy/test_result_tokens.py::test_whatever_a_tool_ships_no_special_or_unknown_id_gets_through",
        "tests/gateway/proxy/test_result_tokens.py::test_ids_that_say_something_else_pass_only_on_trust",
    ),
    "No setting lets control tokens through.": (
        "tests/gateway/proxy/test_result_tokens.py::test_bad_ids_are_replaced_and_counted_at_every_level",
        "tests/gateway/engine/test_template_options.py::test_what_may_be_more_than_a_switch_is_refused_by_name",
    ),
    "Principals never see each other.": "a heading: what follows says it",
    "A session, task, subscription, log message, kept result, or figure of the cache belongs to the key or subject whose request made it; for everybody else it does not exist.": (
        "tests/gateway/serve/mcp/test_http_session.py::test_session_that_is_unknown_or_somebody_elses_is_not_found",
        "tests/gateway/proxy/test_tasks.py::test_task_of_another_principal_is_as_if_it_were_not_there",
        "tests/gateway/proxy/test_tasks.py::test_what_a_server_says_or_asks_of_a_task_reaches_who_made_it_only",
        "tests/gateway/proxy/test_router.py::test_client_ends_no_subscription_but_its_own",
        "tests/gateway/proxy/test_client_processes.py::test_client_that_wants_few_log_messages_takes_none_from_another_on_the_same_session",
        "tests/gateway/engine/test_left_behind.py::test_with_the_second_principal_all_is_forgotten_for_good",
        "tests/gateway/agent/test_memory.py::test_nobody_goes_on_from_the_conversation_of_another",
        "tests/gateway/agent/test_large_results.py::test_handle_of_another_conversation_is_answered_like_one_that_never_was",
    ),
    "What a key may not use appears in none of its lists.": (
        "tests/gateway/proxy/test_views.py::test_search_finds_and_calls_what_the_client_may_use",
        "tests/e2e/test_access.py::test_key_sees_its_servers_and_tools_and_nothing_else",
    ),
    "No principal gets more than its share.": (
        "tests/gateway/proxy/test_shares.py::test_one_principal_gets_its_share_and_is_told_which_and_what_to_do",
        "tests/gateway/engine/test_slots.py::test_principal_that_fills_its_share_of_the_queue_leaves_room_for_the_others",
        "tests/gateway/context/memory/test_bounds.py::test_principal_has_no_more_than_its_share_beside_others",
        "tests/gateway/serve/responses/test_store.py::test_principal_has_no_more_than_its_share_beside_others",
        "tests/gateway/serve/auth/test_sign_in_pages.py::test_sign_ins_count_as_requests_of_the_key",
        "tests/gateway/proxy/test_exchange.py::test_tokens_of_one_user_leave_places_for_the_others",
    ),
    "An access token with which a caller came goes to no server: one with `exchange` gets what your authorization server issued for it, and for nobody else.": (
        "tests/gateway/proxy/test_exchange.py::test_no_server_ever_gets_a_caller_s_own_token",
        "tests/gateway/proxy/transport/over_http/test_exchange.py::test_caller_s_own_token_is_refused_even_if_a_newer_one_came_meanwhile",
        "tests/gateway/proxy/test_exchange.py::test_two_users_are_themselves_in_a_thousand_interleaved_calls_with_two_exchanges",
        "tests/gateway/proxy/test_exchange.py::test_token_of_the_same_user_with_other_rights_has_its_own_session_and_exchange",
        "tests/gateway/proxy/transport/over_http/test_exchange.py::test_redirect_is_not_followed_and_the_token_goes_nowhere_else",
    ),
    "At a server with `auth.per_user`, a principal's calls carry its own token or none, and a sign-in becomes that of whoever proved who they are at the gateway's page.": (
        "tests/gateway/proxy/test_per_user.py::test_each_principal_is_itself_at_the_server_in_a_thousand_interleaved_calls",
        "tests/gateway/proxy/test_per_user.py::test_caller_who_has_not_signed_in_is_told_where_and_nothing_is_sent",
        "tests/gateway/serve/auth/test_sign_in_pages.py::test_user_signs_in_by_the_page_and_it_is_exactly_theirs",
        "tests/gateway/serve/auth/test_sign_in_pages.py::test_address_that_one_user_sends_to_another_signs_in_nobody",
    ),
    "Bounds hold before anybody has signed in.": "a heading: what follows says it",
    "Heads, bodies, silence, unread answers and connections have limits that apply to unknown callers too.": (
        "tests/gateway/serve/http/test_client_connection.py::test_endless_head_ends_at_the_bound_however_much_is_sent",
        "tests/gateway/serve/http/test_client_connection.py::test_head_that_does_not_come_ends_the_connection",
        "tests/gateway/serve/http/test_client_connection.py::test_silence_in_a_body_ends_the_connection_and_the_request",
        "tests/gateway/serve/http/test_client_connection.py::test_client_that_reads_nothing_is_cut_off_and_its_answer_s_maker_told",
        "tests/gateway/serve/http/test_client_connection.py::test_connections_have_a_bound_in_all_and_the_next_one_gets_503",
        "tests/gateway/serve/mcp/test_mcp.py::test_body_over_the_limit_is_refused",
        "tests/gateway/serve/http/test_body.py::test_body_is_read_up_to_the_bound_and_no_further",
        "tests/gateway/serve/http/test_body.py::test_bound_holds_for_what_a_body_decompresses_to",
        "tests/gateway/serve/http/test_body.py::test_bound_holds_for_what_is_sent_even_if_it_decompresses_to_nothing",
    ),
    "Everything that a server or an engine can send is limited as well.": (
        "tests/gateway/proxy/test_proxy.py::test_result_over_the_limit_is_an_error_result_and_the_connection_lives",
        "tests/gateway/proxy/test_proxy.py::test_definitions_over_the_limit_in_all_are_given_up_though_each_page_is_within_it",
        "tests/gateway/engine/wire/test_llama_cpp_stream.py::test_stream_of_messages_without_ids_has_an_end",
    ),
    "Clients can't make the gateway fetch URLs.": "a heading: what follows says it",
    "They name token maps by hash, never by URL.": (
        "tests/gateway/serve/mcp/test_session_map.py::test_malformed_or_unknown_header_is_refused_with_the_names_that_are_accepted",
        "tests/gateway/serve/mcp/test_session_map.py::test_meta_value_that_is_no_held_map_is_refused",
    ),
    "An address that a server names, such as that of its token issuer, is used only if it is public and https, or if your configuration names it.": (
        "tests/gateway/proxy/transport/over_http/test_oauth.py::test_server_can_not_lead_us_into_our_own_network",
        "tests/gateway/proxy/transport/over_http/test_sign_in.py::test_server_can_not_lead_the_gateway_into_its_own_network",
        "tests/gateway/serve/auth/oauth/test_jwks.py::test_metadata_of_another_or_to_nowhere_is_not_believed",
    ),
    "A wrong map never reaches the engine.": "a heading: what follows says it",
    "Each connection to an engine is proven to speak the map's ids before any id is sent.": (
        "tests/gateway/engine/wire/test_known_connections.py::test_engine_that_is_exchanged_between_two_polls_gets_no_ids",
        "tests/gateway/engine/wire/test_known_connections.py::test_engine_without_a_start_marker_is_proven_on_each_new_connection",
    ),
    "Closed unless you open it.": "a heading: what follows says it",
    "The gateway listens on loopback; beyond loopback it asks for a credential.": (
        "tests/gateway/serve/auth/test_token.py::test_no_token_is_asked_on_loopback",
        "tests/gateway/serve/auth/test_token.py::test_token_is_made_at_the_first_start_beyond_loopback_and_kept",
    ),
    "Keys are stored as SHA-256, secrets are masked in logs, and foreign text is escaped there.": (
        "tests/gateway/serve/auth/test_keys.py::test_file_holds_no_key",
        "tests/gateway/observe/test_logs.py::test_secrets_are_masked_by_name_by_shape_and_by_value",
        "tests/gateway/cli/test_masked_logs.py::test_token_of_the_state_folder_is_masked_in_the_log_of_serve",
        "tests/gateway/cli/test_masked_logs.py::test_key_of_the_engine_is_masked_in_all_that_a_command_writes",
        "tests/gateway/observe/test_logs.py::test_no_value_starts_a_second_line_or_moves_the_terminal",
    ),
    "Foreign text never becomes a metric's label, or markup.": (
        "tests/gateway/observe/test_metrics.py::test_word_outside_its_list_is_counted_as_other",
        "tests/gateway/observe/test_metrics.py::test_number_of_servers_is_bounded",
        "tests/codec_console/test_render.py::test_text_is_escaped_made_visible_and_cut_without_being_asked",
    ),
    "No call that needs an approval runs without one.": "a heading: what follows says it",
    "With `approvals.ask` set, a call of a tool that it covers reaches its server only after somebody has approved exactly this call, whichever way it came, and an approval is good for one call.": (
        "tests/gateway/proxy/test_approvals.py::test_call_that_needs_an_approval_runs_only_with_one",
        "tests/gateway/proxy/test_tool_overrides.py::test_renamed_tool_keeps_the_stricter_approval_of_its_names",
        "tests/gateway/proxy/test_approval_of_calls.py::test_where_nobody_can_be_asked_such_a_call_is_refused_with_the_reason",
        "tests/gateway/proxy/test_approval_of_calls.py::test_approval_is_for_what_was_asked_and_for_whom_it_was",
        "tests/gateway/proxy/test_approval_of_calls.py::test_approval_makes_one_call_however_often_it_is_sent",
        "tests/gateway/serve/generation/test_approvals.py::test_approvals_at_the_same_time_make_one_call",
    ),
    "Requests can be stricter than this setting, never looser.": (
        "tests/gateway/serve/responses/test_endpoint.py::test_call_is_asked_for_where_the_client_wants_that",
        "tests/gateway/serve/generation/test_approvals.py::test_client_of_responses_is_asked_whatever_its_request_says",
    ),
    "The console shows text only where you allow it.": "a heading: what follows says it",
    'With `console.texts = "off"` nobody who signs in gets text of a conversation, or token ids that could be turned back into it.': (
        "tests/codec_console/test_conversations.py::test_no_text_leaves_while_texts_are_off",
        "tests/codec_console/test_conversations.py::test_no_id_leaves_while_texts_are_off",
        "tests/codec_console/test_conversations.py::test_last_user_message_names_a_conversation_only_where_text_is_shown",
        "tests/codec_console/test_why.py::test_words_stay_unseen_unless_the_settings_show_them",
    ),
    "With `auto` they get it only by a switch that the audit log records, unless the admin port is on loopback and callers have no keys.": (
        "tests/codec_console/test_words.py::test_text_is_shown_by_default_where_all_callers_are_the_operator",
        "tests/codec_console/test_words.py::test_switch_holds_for_one_session_and_is_audited",
    ),
}
ARCHITECTURE: Final[Mapping[str, Held]] = {
    "gateway: `__main__ > cli > workers > app > serve > agent > context > proxy | engine > shared > replicas > toolcalls | observe | protocol | http1 | documentation > config > errors | deadlines | breaker | escape`": (
        "tests/test_docs.py::test_floors_are_those_that_are_checked",
    ),
    "SDK: `cli > serve > testing > leaf > fetch > trajectories | vocab | wire > errors`": (
        "tests/test_docs.py::test_floors_are_those_that_are_checked",
    ),
    "`gateway`, `time_leaf` and `plain_time` build on `leaf_sdk`, never on each other; `codec_bench`, `codec_console` and `codec_demo` build on `gateway`, which does not know them.": "make check holds it: the contracts of tool.importlinter in pyproject.toml",
    "`leaf_sdk.vocab`, `leaf_sdk.wire`, `gateway.toolcalls` and `gateway.protocol` import no IO, no event loop, no clock, no logs, no metrics.": "make check holds it: the contracts of tool.importlinter in pyproject.toml",
    "Foreign text is ordinary text, wherever it stands.": "a heading: what follows says it",
    "Contents are tokenized with special tokens off; names, keys, descriptions, ids and arguments carry separators wherever they and the template's own characters could form a marker.": (
        "tests/gateway/engine/test_template.py::test_control_tokens_of_a_message_stay_text",
        "tests/gateway/engine/test_template.py::test_definitions_of_tools_can_not_spell_control_tokens",
        "tests/gateway/engine/test_template.py::test_keys_of_a_schema_can_not_complete_a_marker_that_the_template_begins",
        "tests/gateway/engine/test_template.py::test_arguments_of_earlier_calls_spell_no_control_token_however_they_are_escaped",
        "tests/gateway/engine/test_foreign_text.py::test_words_of_others_never_become_control_tokens",
        "tests/gateway/proxy/test_result_tokens.py::test_spelling_of_a_control_token_in_a_text_stays_ordinary_text",
    ),
    "Ids can't defend a model whose role marks are ordinary text.": "a limit, and no promise",
    "Leaf ids from outside are used only if they belong to an accepted map, none is special, and they decode to exactly their block's text.": (
        "tests/gateway/proxy/test_result_tokens.py::test_ids_of_a_map_that_is_not_accepted_are_refused_and_counted_as_a_mismatch",
        "tests/gateway/proxy/test_result_tokens.py::test_id_that_is_special_only_in_the_payloads_map_is_refused",
        "tests/gateway/proxy/test_result_tokens.py::test_whatever_a_tool_ships_no_special_or_unknown_id_gets_through",
        "tests/gateway/proxy/test_result_tokens.py::test_ids_that_say_something_else_pass_only_on_trust",
    ),
    '`tokens.verify = "trust"` drops the last check only.': (
        "tests/gateway/proxy/test_result_tokens.py::test_ids_that_say_something_else_pass_only_on_trust",
        "tests/gateway/proxy/test_result_tokens.py::test_bad_ids_are_replaced_and_counted_at_every_level",
    ),
    "A wrong map never reaches the engine.": "a heading: what follows says it",
    "A map is bytes with a sha256.": (
        "tests/leaf_sdk/fetch/test_attacks.py::test_bytes_of_another_hash_are_neither_used_nor_kept",
    ),
    "`gateway/engine/start/maps.py` compares vocabulary size, special tokens and a battery of strings with the engine whenever it comes up; if they differ, the route is closed with an error that shows the string and both id lists.": (
        "tests/gateway/engine/test_map_proof.py::test_map_with_more_ids_than_the_engine_has_is_refused_by_size",
        "tests/gateway/engine/test_map_proof.py::test_swapped_markers_are_found",
        "tests/gateway/engine/test_map_proof.py::test_swapped_words_are_found_and_shown_with_both_id_lists",
    ),
    "Control tokens that a map leaves out are found by asking the engine, and count as special.": (
        "tests/gateway/engine/test_map_proof.py::test_control_token_that_the_map_leaves_out_counts_as_special_whatever_the_map_says",
    ),
    "The proof belongs to the connection: no request is sent over one until it is known which engine answers there.": (
        "tests/gateway/engine/wire/test_known_connections.py::test_engine_that_is_exchanged_between_two_polls_gets_no_ids",
        "tests/gateway/engine/wire/test_known_connections.py::test_engine_without_a_start_marker_is_proven_on_each_new_connection",
    ),
    "Clients can't make the gateway fetch URLs.": "a heading: what follows says it",
    "They name maps by hash, from those the operator listed.": (
        "tests/gateway/serve/mcp/test_session_map.py::test_malformed_or_unknown_header_is_refused_with_the_names_that_are_accepted",
        "tests/gateway/serve/mcp/test_session_map.py::test_meta_value_that_is_no_held_map_is_refused",
    ),
    "Every buffer has a bound: head, body, line, result, ids of a result, turns, time of a call; so has the number of connections.": (
        "tests/gateway/serve/http/test_client_connection.py::test_endless_head_ends_at_the_bound_however_much_is_sent",
        "tests/gateway/serve/http/test_client_connection.py::test_head_that_does_not_come_ends_the_connection",
        "tests/gateway/serve/http/test_client_connection.py::test_silence_in_a_body_ends_the_connection_and_the_request",
        "tests/gateway/serve/http/test_client_connection.py::test_client_that_reads_nothing_is_cut_off_and_its_answer_s_maker_told",
        "tests/gateway/serve/http/test_client_connection.py::test_connections_have_a_bound_in_all_and_the_next_one_gets_503",
        "tests/gateway/serve/mcp/test_mcp.py::test_body_over_the_limit_is_refused",
        "tests/gateway/serve/http/test_body.py::test_body_is_read_up_to_the_bound_and_no_further",
        "tests/gateway/serve/http/test_body.py::test_bound_holds_for_what_a_body_decompresses_to",
        "tests/gateway/serve/http/test_body.py::test_bound_holds_for_what_is_sent_even_if_it_decompresses_to_nothing",
        "tests/gateway/agent/test_turn.py::test_turn_limit_ends_a_model_that_never_stops_calling",
        "tests/gateway/agent/test_calls.py::test_long_result_is_cut_to_the_limit_and_the_model_is_told",
        "tests/gateway/proxy/test_proxy.py::test_result_over_the_limit_is_an_error_result_and_the_connection_lives",
        "tests/gateway/proxy/test_proxy.py::test_call_over_its_time_is_an_error_result_and_the_server_is_told",
    ),
    "Each principal has a share of what clients may hold open (`gateway/proxy/shares.py`, 0016).": (
        "tests/gateway/proxy/test_shares.py::test_one_principal_gets_its_share_and_is_told_which_and_what_to_do",
        "tests/gateway/engine/test_slots.py::test_principal_that_fills_its_share_of_the_queue_leaves_room_for_the_others",
        "tests/gateway/context/memory/test_bounds.py::test_principal_has_no_more_than_its_share_beside_others",
        "tests/gateway/serve/responses/test_store.py::test_principal_has_no_more_than_its_share_beside_others",
    ),
    "Nothing is lost silently.": "a heading: what follows says it",
    "A broken stream is an error, a dead server is an error result with its name, refused ids are counted with a reason.": (
        "tests/gateway/engine/wire/test_engine_client.py::test_a_stream_that_goes_wrong_is_an_error_and_never_an_end",
        "tests/gateway/agent/test_turn.py::test_stream_that_ends_without_an_end_is_reported_and_no_answer",
        "tests/gateway/proxy/test_proxy.py::test_death_in_the_middle_of_a_call_is_told_at_once_and_the_server_comes_back",
        "tests/gateway/proxy/test_result_tokens.py::test_bad_ids_are_replaced_and_counted_at_every_level",
    ),
    "A stopping gateway drains.": (
        "tests/gateway/serve/http/test_drain.py::test_running_request_finishes_and_a_new_one_is_refused",
    ),
    "From request to request.": "the name of what follows",
    "The law of recall: the prompt of a request is the engine's rendering of the messages as the model lived them, followed by the new ones, in which every turn of the model that the rendering shows whole has the ids it was written with.": (
        "tests/gateway/agent/recall/test_templates.py::test_prompt_is_the_rendering_of_what_was_lived_with_the_ids_of_the_model",
        "tests/gateway/agent/test_memory.py::test_conversation_under_an_option_of_the_template_continues_none_without_it",
    ),
    "Where one rendering shows that the template only appends to such a conversation, the template is not asked again.": (
        "tests/gateway/agent/recall/test_shapes.py::test_second_conversation_of_a_shape_is_not_rendered",
    ),
    "End of turn.": "the name of what follows",
    "The engine samples the end-of-turn id but never processes it.": "an explanation of the model, the engine or the template",
    "It is left out of the conversation, and the template's own turn end takes its place, so both sides hold the same.": (
        "tests/gateway/agent/test_turn.py::test_result_is_spliced_behind_the_ids_that_the_model_wrote",
    ),
    "Lost ids. llama.cpp's stream holds back tokens that end inside a character and then sends one id for several.": "an explanation of the model, the engine or the template",
    "`gateway/engine/wire/llama_cpp_json.py` finds the lost ones: the bytes are known, the number is known, and nearly always one split fits.": (
        "tests/gateway/engine/wire/test_llama_cpp_stream.py::test_ids_that_the_stream_lost_are_found_and_counted_in_gathered_events_too",
    ),
    "Where several do, the turn is marked `guessed`, and the next turn's cache shows whether that was right. vLLM loses none.": (
        "tests/gateway/engine/wire/test_id_repair.py::test_where_several_splits_fit_the_tokenizers_own_wins_and_is_marked_as_a_guess",
        "tests/gateway/agent/test_turn.py::test_turn_of_guessed_ids_is_judged_by_what_the_cache_held_of_it",
    ),
    "Stop strings are found in the gateway: an engine that knew them would withhold ids.": (
        "tests/gateway/agent/test_turn.py::test_stop_string_ends_the_answer_without_being_shown",
    ),
    "Arguments.": "the name of what follows",
    "A bolt-on gets the run of the model's ids that spells its call, found by `gateway/agent/results/id_slices.py` between the format's markers: the run begins and ends with whole tokens, and spells what the parser read.": (
        "tests/gateway/agent/test_argument_ids.py::test_an_object_that_shares_a_token_with_something_else_is_not_sent_as_ids",
        "tests/gateway/agent/test_argument_ids.py::test_what_does_not_say_exactly_this_call_is_not_sent_as_ids",
    ),
    "Otherwise it gets ids made here.": (
        "tests/gateway/proxy/bolt_on/test_bolt_on_calls.py::test_a_client_can_not_say_which_ids_a_model_wrote",
    ),
    "Scaffold.": "the name of what follows",
    "What the template writes around a tool result depends on the shape of the model's turn before it: the number and names of its calls, and whether it has words or reasoning.": "an explanation of the model, the engine or the template",
    "Its ids are found by rendering a turn of that shape, once for each shape.": (
        "tests/gateway/engine/test_template.py::test_shape_of_a_turn_is_asked_of_the_engine_once",
    ),
    "Engines state how they differ (`Capabilities`): no code asks which one it is.": (
        "tests/gateway/engine/test_capabilities.py::test_only_the_module_that_makes_the_clients_asks_which_engine_it_is",
    ),
    "Slots.": "the name of what follows",
    "A llama.cpp slot is one KV cache.": "an explanation of the model, the engine or the template",
    "Where the engine is ours alone, `gateway/engine/slots/allocation.py` remembers what each holds and for whom, and gives a generation the free slot, known to be at rest, whose ids its prompt continues; `swap_plan.py` beside it decides which slots of the embedded engine are swapped to files and back; `slot.py` knows where a cache can be cut.": (
        "tests/gateway/engine/test_checkpoints.py::test_what_is_reused_is_a_common_beginning_that_the_cache_can_go_back_to",
        "tests/gateway/engine/test_slots.py::test_the_slot_with_the_longest_common_prefix_is_taken",
        "tests/gateway/engine/test_slots.py::test_what_another_principal_left_decides_nothing",
        "tests/gateway/engine/test_slots.py::test_a_slot_is_named_only_once_the_engine_says_that_it_does_nothing",
    ),
    "Elsewhere the server chooses.": (
        "tests/gateway/engine/test_slots.py::test_no_slot_is_named_where_the_engine_is_not_ours_alone",
    ),
    "`prefill.py` processes what precedes a result while the tool works.": (
        "tests/gateway/agent/test_prefill.py::test_what_was_processed_ahead_of_time_counts_as_processed_once",
    ),
    "Among several engines `engine_choice.py` chooses which answers; if one is lost, `gateway/agent/generate/generation.py` continues on another.": (
        "tests/gateway/engine/test_homes.py::test_homes_are_spread_evenly",
        "tests/gateway/agent/test_failover.py::test_an_answer_goes_on_with_the_ids_that_are_there_wherever_it_is_lost",
    ),
}
