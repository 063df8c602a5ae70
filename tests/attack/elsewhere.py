"""Attacks that are among the tests of what they attack: for each, the tests by file and name."""

from __future__ import annotations

from collections.abc import Mapping

SERVE, ENGINES, CLIENT = "tests/io/serve", "tests/io/engines", "tests/io/client"
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "two processes write one file": (
        "tests/io/test_atomic_write.py::test_two_runs_to_one_file_do_not_mix",
        "tests/io/test_atomic_write.py::test_calls_of_two_rollouts_do_not_mix",
    ),
    "a link stands where a temporary file is written": (
        "tests/io/test_atomic_write.py::test_a_link_in_the_place_of_the_temporary_file_is_not_followed",
    ),
    "a signal ends a command while it writes": (
        "tests/io/test_atomic_write.py::test_a_signal_leaves_the_old_file_and_no_other",
    ),
    "a disk is full": (
        "tests/io/test_atomic_write.py::test_a_device_that_is_full_is_named",
        "tests/io/test_atomic_write.py::test_a_file_that_cannot_grow_is_named_and_removed",
    ),
    "connections send nothing, or half of a request": (
        f"{SERVE}/test_connections.py::test_half_sent_requests_beyond_the_open_files_do_not_stop_it",
        f"{SERVE}/test_connections.py::test_a_request_that_does_not_arrive_is_given_up",
        f"{SERVE}/test_connections.py::test_headers_that_come_one_by_one_are_given_up_too",
        f"{SERVE}/test_connections.py::test_further_connections_are_answered_with_503_and_when_to_come_again",
        f"{SERVE}/test_connections.py::test_connections_that_cannot_be_accepted_are_logged_once_a_second",
    ),
    "a body of few bytes stands for many": (
        f"{SERVE}/test_bodies.py::test_few_bytes_take_little_time_and_memory",
        f"{SERVE}/test_bodies.py::test_other_requests_are_answered_while_a_body_is_read",
    ),
    "a body nests deep, or has many messages": (
        f"{SERVE}/test_requests.py::test_a_field_that_nests_too_deep_is_named_before_anything_is_sampled",
        f"{SERVE}/test_bodies.py::test_a_request_of_too_many_messages_is_refused_before_they_are_read",
    ),
    "a file of few bytes stands for many": (
        "tests/io/samples/test_bombs.py::test_a_bomb_takes_little",
        "tests/io/samples/test_bombs.py::test_each_compressed_byte_allows_more_lines_and_values",
    ),
    "a store has two names": (
        f"{SERVE}/test_stores.py::test_a_symbolic_link_and_its_target_are_one_store",
        f"{SERVE}/test_stores.py::test_a_file_with_hard_links_is_refused",
    ),
    "a log-probability is above 0": (
        "tests/io/samples/test_records.py::test_a_file_becomes_what_its_line_says",
        "tests/core/test_step.py::test_a_step_names_what_is_wrong_with_it",
        "tests/core/test_step.py::test_a_log_probability_that_was_rounded_up_is_zero",
    ),
    "sampled JSON spells half of a character": (
        f"{SERVE}/test_half_characters.py::test_half_a_character_in_a_call_loses_no_turn",
        "tests/io/embedded/test_parsing.py::test_half_a_character_in_a_call_can_be_written",
    ),
    "an engine's text is not that of its ids": (
        f"{SERVE}/test_text_check.py::test_a_text_that_is_not_of_the_ids_is_counted_and_logged",
        f"{SERVE}/test_text_check.py::test_such_a_turn_is_an_error_where_that_is_chosen_and_is_not_kept",
    ),
    "a list of models fails": (
        f"{ENGINES}/test_http_engine.py::test_a_turn_does_not_need_the_list_of_models",
    ),
    "a callback cannot be awaited": (
        f"{CLIENT}/test_token_client.py::test_a_callback_that_cannot_be_awaited_is_found_before_anything_is_sent",
    ),
    "keys are guessed, too long, or commented out": (
        f"{SERVE}/test_auth.py::test_an_unknown_key_without_a_session_is_an_unknown_key",
        f"{SERVE}/test_auth.py::test_with_keys_a_session_is_there_only_for_the_key_that_opened_it",
        f"{SERVE}/test_command.py::test_a_line_that_is_no_key_is_refused",
    ),
    "an address of a store has a password": (
        f"{SERVE}/test_stores.py::test_an_address_that_is_wrong_is_said_without_its_password",
    ),
    "an image is at an address inside of the network": (
        f"{SERVE}/test_media.py::test_addresses_inside_of_a_network_are_not_fetched",
        f"{SERVE}/test_media.py::test_an_address_that_stands_for_another_or_serves_machines_is_not_public",
        f"{SERVE}/test_media.py::test_an_address_of_the_machine_itself_is_not_fetched_from",
        f"{SERVE}/test_media.py::test_a_host_with_one_address_inside_of_the_network_is_not_asked",
    ),
    "a client leaves just before the end of its answer": (
        f"{SERVE}/test_connections.py::test_a_turn_whose_client_left_just_before_its_end_was_sent_is_not_stored",
    ),
    "hundreds of sessions begin at once": (
        f"{ENGINES}/test_one_asks.py::test_many_conversations_that_begin_at_once_ask_no_more_than_one",
        f"{SERVE}/test_stores.py::test_a_new_session_is_opened_without_a_thread",
    ),
    "a session has more requests than there are places": (
        f"{SERVE}/test_places.py::test_an_agent_with_one_request_does_not_wait_for_all_those_of_another",
    ),
}
