"""Every fault of the old systems that this version mends has its regression tests."""

from __future__ import annotations

import re
from pathlib import Path

SHOWN: dict[str, tuple[str, ...]] = {
    "a log entry that cannot be read is deleted": (
        "test_oplog_faults.py::test_a_network_error_while_reading_is_not_corruption",
        "test_oplog_faults.py::test_an_entry_that_cannot_be_parsed_is_reported_and_never_deleted",
        "test_oplog_faults.py::test_a_legacy_java_entry_is_read_as_what_it_is",
    ),
    "a rename moves what was read before": (
        "test_tree_faults.py::test_a_rename_moves_what_is_there_and_not_what_was_read_before",
        "test_metadata_faults.py::test_two_renames_of_one_source_leave_one_entry",
    ),
    "a stale deletion removes what came after": (
        "test_metadata_faults.py::test_a_stale_delete_spares_a_file_that_was_written_anew",
        "test_metadata_faults.py::test_a_stale_delete_spares_a_file_that_was_created_anew",
    ),
    "a creation replaces what another has made": (
        "test_hadoop_faults.py::test_create_without_overwrite_never_replaces",
        "test_metadata_faults.py::test_of_many_exclusive_creators_one_wins",
        "test_metadata_faults.py::test_a_file_and_a_directory_never_replace_each_other",
    ),
    "the loser of a race rolls back the winner": (
        "test_tree_faults.py::test_the_loser_of_a_race_takes_its_pending_entry_back",
        "test_oplog_faults.py::test_the_rollback_of_a_losing_writer_leaves_the_committed_entry_of_the_winner",
        "test_oplog_faults.py::test_a_pending_entry_does_not_replace_the_last_good_one",
        "test_oplog_faults.py::test_of_many_racing_writers_none_overwrites_another",
        "test_metadata_faults.py::test_the_loser_of_a_race_leaves_the_winners_log_entry",
    ),
    "a lost answer turns a success into a conflict": (
        "test_metadata_faults.py::test_a_write_whose_answer_was_lost_is_a_success",
        "test_metadata_faults.py::test_an_answer_that_never_comes_is_unknown_and_stays_pending",
    ),
    "a second close commits what was not uploaded": (
        "test_client_faults.py::test_a_close_whose_upload_failed_never_commits",
        "test_client_faults.py::test_a_close_whose_commit_failed_never_commits_again",
        "test_client_faults.py::test_leaving_the_with_block_by_a_failed_close_never_commits",
        "test_client_faults.py::test_a_stored_object_that_is_not_what_was_sent_is_not_committed",
        "test_client_faults.py::test_a_commit_whose_answer_was_lost_is_not_sent_again_by_a_second_close",
        "test_client_faults.py::test_a_close_that_failed_never_commits_in_the_blocking_client",
        "test_tree_faults.py::test_a_file_of_which_less_was_stored_than_sent_is_not_published",
    ),
    "directories have no log": (
        "test_oplog_faults.py::test_an_empty_directory_can_be_told_from_the_log_alone",
    ),
    "`/a` matches `/ab`": ("test_tree_faults.py::test_a_subtree_ends_at_a_component",),
    "two entries for one version pass": (
        "test_oplog_faults.py::test_two_entries_committed_for_one_version_are_both_reported",
    ),
    "a target whose text begins with the source's is refused": (
        "test_hadoop_faults.py::test_rename_to_a_name_that_begins_with_the_source",
    ),
    "a name with a colon cannot be read back": (
        "test_native_faults.py::test_a_name_with_a_colon_can_be_read_back",
        "test_metadata_faults.py::test_a_name_with_a_colon_is_an_ordinary_name",
    ),
    "a name whose hash is -2**31 has no suffix": (
        "test_native_faults.py::test_a_name_whose_hash_has_no_absolute_value_has_a_suffix",
        "test_metadata_faults.py::test_a_name_that_hashes_to_the_least_integer_is_an_ordinary_name",
    ),
    "the root has several spellings": (
        "test_settings_faults.py::test_a_url_without_the_trailing_slash_is_the_same_volume",
        "test_native_faults.py::test_the_root_has_one_spelling_in_keys",
        "test_native_faults.py::test_nothing_is_above_the_root",
        "test_hadoop_faults.py::test_the_volume_without_a_slash_is_its_root",
    ),
    "a file is a parent, and flags hide overwrite": (
        "test_hadoop_faults.py::test_create_non_recursive_refuses_a_file_as_parent",
        "test_hadoop_faults.py::test_overwrite_counts_among_any_flags",
    ),
    "rename and delete return the wrong thing, or raise an error without a path": (
        "test_hadoop_faults.py::test_rename_of_an_absent_path_to_itself_is_an_error",
        "test_hadoop_faults.py::test_a_failed_rename_is_an_os_error_that_names_what_failed",
        "test_hadoop_faults.py::test_a_refused_delete_of_the_root_is_not_silent",
    ),
    "block size and replication are 0": (
        "test_hadoop_faults.py::test_block_size_and_replication_let_jobs_compute_splits",
    ),
    "a directory consumes no space": (
        "test_hadoop_faults.py::test_the_space_consumed_is_the_length_everywhere",
    ),
    "modification times and the order of listings are wrong": (
        "test_hadoop_faults.py::test_the_modification_time_is_that_of_publication_in_milliseconds",
        "test_hadoop_faults.py::test_a_rename_keeps_the_modification_time",
        "test_hadoop_faults.py::test_a_listing_is_sorted_by_name",
    ),
    "a setting is taken from another bucket's key": (
        "test_settings_faults.py::test_a_setting_of_a_context_falls_back_to_that_of_the_bucket",
        "test_settings_faults.py::test_an_unrelated_key_that_ends_with_the_buckets_name_does_no_harm",
    ),
    "names of buckets and paths are refused, or sent though they are too long": (
        "test_settings_faults.py::test_buckets_with_underscores_and_dots_work",
        "test_native_faults.py::test_volume_names_may_contain_an_underscore",
        "test_native_faults.py::test_names_over_1024_bytes_are_refused",
        "test_native_faults.py::test_partition_keys_over_2048_bytes_are_refused_whatever_the_name_hashes_to",
    ),
    "files appear in a directory that goes away": (
        "test_tree_faults.py::test_a_file_is_not_moved_into_a_directory_that_gets_an_intent_meanwhile",
    ),
    "a directory that was empty is deleted with what came since": (
        "test_tree_faults.py::test_a_directory_that_is_no_longer_empty_stays",
    ),
    "a file that is being written is renamed": (
        "test_tree_faults.py::test_a_file_that_is_being_written_is_not_renamed_and_still_closes",
    ),
    "a listing asks one suffix after the other and holds all": (
        "test_metadata_faults.py::test_all_suffixes_of_a_directory_are_asked_at_once",
        "test_metadata_faults.py::test_a_listing_streams",
    ),
    "names with one ending share a suffix": (
        "test_native_faults.py::test_names_that_share_an_ending_spread_over_all_suffixes",
        "test_native_faults.py::test_the_old_hash_puts_names_that_share_an_ending_on_one_suffix",
    ),
    "an empty page ends a listing": (
        "test_metadata_faults.py::test_an_empty_page_does_not_end_a_listing_or_a_scan",
    ),
}
"""Faults, and the tests of this directory that show each to be mended."""

TABLED = [
    *("D1", "D2", *(f"D{number}" for number in range(9, 15))),
    *(f"T{number}" for number in range(1, 9)),
    *(f"P{number}" for number in range(5, 11)),
    *(f"O{number}" for number in range(1, 7)),
]
"""Those of which docs/reliability.md says where they are shown to be mended, or why they are not,
or cannot occur."""
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reliability.md"
ROWS = dict(
    re.findall(r"^\| ([A-Z]\d+): .*? \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
)


def defined(file: str, name: str) -> bool:
    return f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_each_fault_has_its_tests() -> None:
    missing = [
        f"{fault}: no {file}::{name}"
        for fault, tests in SHOWN.items()
        for file, _, name in (test.partition("::") for test in tests)
        if not defined(f"tests/faults/{file}", name)
    ]
    assert not missing, "\n".join(missing)


def test_the_table_has_each_fault() -> None:
    assert list(ROWS) == TABLED


def test_each_fault_of_the_table_has_a_test_or_a_reason() -> None:
    wrong = []
    for fault, row in ROWS.items():
        reason, _, tests = row.partition(" | ")
        shown = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        if not shown and not reason.startswith(("Cannot occur:", "Not fixed:", "Fixed by ")):
            wrong.append(f"{fault} has neither: {row}")
        wrong += [f"{fault}: no {file}::{name}" for file, name in shown if not defined(file, name)]
    assert not wrong, "\n".join(wrong)
