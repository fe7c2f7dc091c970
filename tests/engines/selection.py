"""Which tests of the parametrised engines belong to `make test`.

Tests of the backends, and of what depends on their timing, run on dynoxide and SeaweedFS. The other
engines, and the adapters over aioboto3, answer the same requests: on them, `make test` runs SAMPLE,
and `make test-full` everything. So it is with tests of the client, of what is built on it, and of
the libraries that run on a volume without engines too.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["SAMPLED", "in_short_run", "needs_no_engine"]

SAMPLED = frozenset({"dynamodb_local", "extenddb", "moto", "moto_s3", "reference", "reference_s3"})
"""Ids of parameters, or parts of them, that name such an engine or adapter."""

SAMPLE = frozenset(
    {
        "contracts/test_items_contract.py::test_put_and_get",
        "contracts/test_items_contract.py::test_values_keep_their_type",
        "contracts/test_items_contract.py::test_a_failed_update_changes_nothing_and_shows_the_item",
        "contracts/test_items_contract.py::test_get_many_of_more_than_two_batches",
        "contracts/test_items_load.py::test_what_is_loaded_can_be_read",
        "contracts/test_items_pages.py::test_pages_of_every_size_hold_everything_once",
        "contracts/test_items_pages.py::test_segments_are_disjoint_and_complete",
        "contracts/test_items_table.py::test_create_and_exists",
        "contracts/test_items_transactions.py::test_a_transaction_applies_all_its_actions",
        "contracts/test_items_transactions.py::test_a_transaction_sent_again_is_applied_once",
        "contracts/test_items_transactions.py::test_every_failed_position_is_told",
        "contracts/test_blobs_contract.py::test_copy_within_a_store",
        "contracts/test_blobs_contract.py::test_create_and_exists",
        "contracts/test_blobs_contract.py::test_delete_many_of_more_than_two_batches",
        "contracts/test_blobs_contract.py::test_put_head_and_get",
        "contracts/test_blobs_contract.py::test_put_if_absent",
        "contracts/test_blobs_contract.py::test_put_if_match",
        "contracts/test_blobs_contract.py::test_ranges",
        "contracts/test_blobs_pages.py::test_prefixes",
        "contracts/test_blobs_pages.py::test_facts_of_listed_blobs",
        "contracts/test_blobs_uploads.py::test_an_upload_of_two_parts",
        "contracts/test_blobs_uploads.py::test_abort_leaves_nothing",
        "engines/test_engines.py::test_engines_listen_on_loopback_only",
        "backends/test_dynamodb_lost_answers.py::test_put",
        "test_volumes.py::test_a_volume_is_opened_as_it_was_made",
        "adapters/test_arrow_datasets.py::test_a_filter_on_a_partition_opens_nothing_else",
        "adapters/test_libraries.py::test_pandas_reads_what_it_wrote",
        "client/test_adopting.py::test_a_replaced_object_is_never_read",
        "client/test_adopting.py::test_gc_and_fsck_leave_adopted_bytes_alone",
        "client/test_adopting.py::test_many_are_adopted_together",
        "client/test_expected_objects.py::test_what_comes_after_the_look_is_not_deleted",
        "client/test_lists.py::test_files_and_directories_are_deleted",
        "client/test_lists.py::test_files_are_renamed_from_and_to_many_directories",
        "client/test_many.py::test_a_large_file_among_small_ones",
        "client/test_many.py::test_bytes_that_are_gone_or_wrong",
        "client/test_sorted_listing.py::test_sorted_is_the_same_in_order",
        "client/test_staging.py::test_what_one_client_stages_another_publishes",
        "client/test_transaction.py::test_all_of_it_happens_at_the_end",
        "client/test_write_many.py::test_the_files_of_a_list_are_there",
        "objects/test_buckets.py::test_list_buckets",
        "objects/test_h3_defects.py::test_01_a_partial_overwrite_does_not_truncate",
        "objects/test_h3_defects.py::test_21_every_object_is_listed_and_copied_between_buckets",
        "objects/test_metadata.py::test_many_objects_are_found",
        "objects/test_objects.py::test_copy",
        "objects/test_objects.py::test_creation_is_refused_where_an_object_is",
        "objects/test_objects.py::test_one_of_many_creates_an_object",
        "objects/test_objects.py::test_write_copy",
        "objects/test_paging.py::test_pages_hold_everything_once_in_order",
    }
)

ABOVE_THE_BACKENDS = ("adapters/", "client/", "lifecycle/", "objects/")
"""Folders of the tests of the client, of what is built on it, and of the libraries."""

_WITHOUT_ENGINE = frozenset({"memory", "embedded", "rocksdb"})


def in_short_run(test: str, parameters: Collection[str], *, has_twin: bool) -> bool:
    """Whether `make test` runs a test, named from `tests/` and without parameters, with the
    parameters of these ids; `has_twin`: the test runs without an engine, too."""
    if test in SAMPLE:
        return True
    named = {part for each in parameters for part in each.split("+")}
    if has_twin and test.startswith(ABOVE_THE_BACKENDS) and "seaweedfs" in named:
        return False
    return not named & SAMPLED


def needs_no_engine(parameters: Collection[str]) -> bool:
    """Whether one of these ids names a volume without engines."""
    return not _WITHOUT_ENGINE.isdisjoint(parameters)
