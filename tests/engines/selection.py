"""Which tests of the parametrised engines belong to `make test`.

Every test that needs an engine runs on dynoxide and SeaweedFS. The other engines, and the adapters
over aioboto3, answer the same requests: on them, `make test` runs SAMPLE, and `make test-full`
everything.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["SAMPLED", "in_short_run"]

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
    }
)


def in_short_run(test: str, parameters: Collection[str]) -> bool:
    """Whether `make test` runs a test, named from `tests/` and without parameters, with the
    parameters of these ids."""
    named = {part for each in parameters for part in each.split("+")}
    return test in SAMPLE or not named & SAMPLED
