"""Defects, each of them one small change of the code, and the test that must fail for it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFECTS", "Defect"]

ANYTHING = (
    '(lambda of: type("Anything", (of,), {"holds": lambda self, item: True})())'
    '(__import__("s3k_async.backends.ports.items", fromlist=["Condition"]).Condition)'
)
"""A condition that always holds."""


@dataclass(frozen=True)
class Defect:
    """One place of the code made wrong."""

    name: str
    file: str
    """Below `s3k_async/`."""
    old: str
    """Text that is in the file exactly once."""
    new: str
    test: str
    """What must fail, as pytest takes it."""


METADATA_FAULTS = "tests/faults/test_metadata_faults.py"
GROUPS = "tests/oplog/test_group_commit.py"
CRASH = "tests/torture/test_crash.py"
RELIABLE = "tests/backends/test_retrying_items.py"
PIPELINE = "tests/backends/test_request_pipeline.py"
LOCAL = "tests/backends/test_local.py"
CHAINS = "tests/layouts/test_chain_resolver.py"
TRUST = "tests/layouts/test_directory_trust.py"
REMOVALS = "tests/layouts/test_removals.py"
CLEAN_OBJECTS = "tests/integrity/test_clean_objects.py"
REPAIR_TREE = "tests/integrity/test_repair_tree.py"
BETWEEN_LAYOUTS = "tests/migrate/test_between_layouts.py"
RESHARD = "tests/migrate/test_reshard.py"
LAYOUT_CHANGE = "tests/migrate/test_layout_change.py"
RESTORE_TREE = "tests/integrity/test_restore_plan_tree.py"
RECLAMATION = "tests/layouts/test_reclamation.py"
SPARK_LOAD = "tests/spark/test_loading_trees.py"
SPARK_RESTORE = "tests/spark/test_restoring_trees.py"
RETENTION = "tests/layouts/test_retention.py"
STAGED = "tests/layouts/test_staged_directories.py"
TRANSACTIONS = "tests/layouts/test_transactions.py"
EXTENTS = "tests/storage/test_extents.py"
DIAGNOSIS = "tests/diagnosis/test_faults.py"
DOCTOR = "tests/cli/test_doctor.py"
COMPLETION = "tests/cli/test_completion.py"
PLAN = "tests/cli/test_plan.py"
TERMINAL = "tests/cli/test_terminal.py"
OBJECT_UPLOADS = "tests/objects/test_uploads.py"
COMPOSED = "tests/client/test_composed_files.py"
COMPOSED_BLOBS = "tests/contracts/test_blobs_composed.py"
EDITS = "tests/client/test_edits.py"
MORE = "tests/client/test_edits_more.py"
CACHED_READS = "tests/cache/test_cached_reads.py"
CACHE_DIRECTORY = "tests/cache/test_cache_directory.py"
GC_EXTENTS = "tests/integrity/test_extents.py"
ATTRIBUTES = "tests/client/test_attributes.py"
ATTRIBUTE_RULES = "tests/client/test_attribute_rules.py"
GC_ATTRIBUTES = "tests/integrity/test_attributes.py"
OWNERSHIP = "tests/client/test_ownership_rules.py"
PERMITTED = (
    "tests/client/test_permissions.py::test_a_verb_is_permitted_by_the_bits_of_the_own_class"
)
TIERED_BLOBS = "tests/tiers/test_tiered_blobs.py"
TIER_MOVES = "tests/tiers/test_tier_moves.py"
TIERED_VOLUMES = "tests/tiers/test_tiered_volumes.py"
PAGING = "tests/objects/test_paging.py"
RULES = "tests/lifecycle/test_rules.py"
RULE_MOVES = "tests/lifecycle/test_moves.py"
RULE_RUNS = "tests/lifecycle/test_runners.py"
RULE_TOOLS = "tests/lifecycle/test_tools.py"
MULTIPART = "tests/client/test_multipart.py"
EXCERPTS = "tests/cli/test_excerpts.py"
INSPECTION = "tests/cli/test_inspection.py"
GC_UPLOADS = "tests/integrity/test_uploads.py"
DIRECTORY_RACES = (
    "tests/layouts/test_directory_races.py::test_two_clients_in_every_order_of_their_requests"
)

DEFECTS: tuple[Defect, ...] = (
    Defect(
        "a delete without its condition",
        "namespace/store.py",
        "        delete = Delete(self.keys.of(entry), unchanged(entry))",
        f"        delete = Delete(self.keys.of(entry), {ANYTHING})",
        f"{METADATA_FAULTS}::test_a_stale_delete_spares_a_file_that_was_written_anew",
    ),
    Defect(
        "a creation without its condition",
        "namespace/store.py",
        "            await self._put(Put(to_item(entry, self.keys), ABSENT), entry, chain)",
        f"            await self._put(Put(to_item(entry, self.keys), {ANYTHING}), entry, chain)",
        f"{METADATA_FAULTS}::test_of_many_exclusive_creators_one_wins",
    ),
    Defect(
        "a replacement without its condition",
        "namespace/store.py",
        "Put(to_item(entry, self.keys), unchanged(current)), entry, chain, opened=opened",
        f"Put(to_item(entry, self.keys), {ANYTHING}), entry, chain, opened=opened",
        f"{METADATA_FAULTS}::test_the_loser_of_a_race_leaves_the_winners_log_entry",
    ),
    Defect(
        "a rename without the condition on its source",
        "namespace/store.py",
        """                Delete(self.keys.of(source), unchanged(source)),
                Put(to_item(moved, self.keys), ABSENT if""",
        f"""                Delete(self.keys.of(source), {ANYTHING}),
                Put(to_item(moved, self.keys), ABSENT if""",
        "tests/faults/test_tree_faults.py::test_a_rename_moves_what_is_there_and_not_what_was_read_before",
    ),
    Defect(
        "intents that block no other client",
        "layouts/path/parents.py",
        '        return Condition(equals={"isdir": True}, missing=(NEXT,))',
        '        return Condition(equals={"isdir": True})',
        "tests/faults/test_tree_faults.py::test_a_file_is_not_moved_into_a_directory_that_gets_an_intent_meanwhile",
    ),
    Defect(
        "a parent that is not read again after a creation",
        "namespace/store.py",
        "            has_parent = await self.check_parent(entry, chain)",
        "            has_parent = True",
        "tests/namespace/test_parent_cache.py::test_a_new_file_in_a_known_directory_reads_itself_and_then_its_parent",
    ),
    Defect(
        "a lost answer that is not resolved by what is stored",
        "backends/retrying/retrying_items.py",
        "                verdict = await self._resolve(actions, failure)",
        "                verdict = None\n                raise failure",
        f"{METADATA_FAULTS}::test_a_write_whose_answer_was_lost_is_a_success",
    ),
    Defect(
        "a read-back that does not know our own operation",
        "backends/retrying/retrying_items.py",
        "    return operation is not None and stored is not None and stored.get(OPERATION) == "
        "operation",
        "    return False",
        f"{RELIABLE}::test_a_write_whose_every_answer_is_lost_is_resolved_by_reading_back",
    ),
    Defect(
        "another token when a deletion is sent again",
        "backends/retrying/retrying_items.py",
        "lambda: self._store.transact([action], token), [action], None",
        "lambda: self._store.transact([action], self._runtime.uuid()), [action], None",
        f"{RELIABLE}::test_a_delete_carries_a_token_so_that_its_own_success_is_recognised",
    ),
    Defect(
        "a file that is not synced",
        "backends/local/durable_files.py",
        "        os.fsync(descriptor)\n        return os.fstat(descriptor)",
        "        return os.fstat(descriptor)",
        f"{LOCAL}::test_file_and_directories_are_synced_before_a_put_is_acknowledged",
    ),
    Defect(
        "a directory that is not synced",
        "backends/local/durable_files.py",
        """            if error := sync_file(parent):
                raise _not_for_long(key, error)
""",
        "",
        f"{LOCAL}::test_file_and_directories_are_synced_before_a_put_is_acknowledged",
    ),
    Defect(
        "files of a batch that are not synced",
        "backends/local/durable_files.py",
        "errors = sync_each([draft.file for draft in written])",
        "errors = [None for _ in written]",
        f"{LOCAL}::test_file_and_directories_are_synced_before_a_put_is_acknowledged",
    ),
    Defect(
        "a directory that is not synced for a batch",
        "backends/local/durable_files.py",
        "                if error := sync_file(parent):\n                    for",
        "                if error := None:\n                    for",
        f"{LOCAL}::test_file_and_directories_are_synced_before_a_put_is_acknowledged",
    ),
    Defect(
        "a table that does not wait for the disk",
        "backends/sqlite/sqlite_connections.py",
        '"synchronous=FULL"',
        '"synchronous=NORMAL"',
        "tests/backends/test_sqlite_durability.py::test_every_connection_waits_for_the_disk",
    ),
    Defect(
        "a file that is published before its bytes are stored",
        "storage/physical.py",
        "        info = await self.blobs.put(key, whole)\n        if info.size != len(view):",
        "        async def put_later() -> None:\n"
        "            for _ in range(200):\n"
        "                await anyio.sleep(0)\n"
        "            await self.blobs.put(key, whole)\n\n"
        "        __import__('asyncio').ensure_future(put_later())\n"
        "        info = BlobInfo(key, len(view), '', 0)\n"
        "        if info.size != len(view):",
        f"{CRASH}::test_death_at_every_call[write:over-path]",
    ),
    Defect(
        "an upload of another size that is accepted",
        "storage/physical.py",
        "        if info.size != len(view):",
        "        if False:",
        "tests/faults/test_tree_faults.py::test_a_file_of_which_less_was_stored_than_sent_is_not_published",
    ),
    Defect(
        "a writer that does not look at its lease",
        "txn/lease.py",
        "    if now_ms > expiry_ms:",
        "    if False:",
        "tests/namespace/test_store.py::test_a_writer_past_its_lease_publishes_nothing",
    ),
    Defect(
        "a log that is rolled back after an unknown outcome",
        "txn/logged_write.py",
        "            except OutcomeUnknownError:\n                note_change()\n                "
        "pending.abandon()\n                raise\n"
        "            except S3kError:",
        "            except S3kError:",
        f"{METADATA_FAULTS}::test_an_answer_that_never_comes_is_unknown_and_stays_pending",
    ),
    Defect(
        "a log that keeps what definitely failed",
        "txn/logged_write.py",
        "                await pending.rollback()\n",
        "                pass\n",
        "tests/faults/test_tree_faults.py::test_the_loser_of_a_race_takes_its_pending_entry_back",
    ),
    Defect(
        "no tombstone for a file that a rename replaced",
        "namespace/store.py",
        '            operations.append(self.changes.operation("delete", replaced, None))',
        "            pass",
        f"{CRASH}::test_death_at_every_call[rename:over-path]",
    ),
    Defect(
        "a tombstone of the version that it ends",
        "txn/logged_write.py",
        "self._runtime.uuid(), before.id, before.version + 1",
        "self._runtime.uuid(), before.id, before.version",
        "tests/namespace/test_recursive.py::test_every_change_is_in_the_log",
    ),
    Defect(
        "log entries that replace one another",
        "oplog/log_writer.py",
        "            await self._blobs.put(key, data, if_absent=True)",
        "            await self._blobs.put(key, data)",
        "tests/oplog/test_log_writer.py::test_another_operation_under_the_same_id_is_refused_and_the_first_one_stays",
    ),
    Defect(
        "a group whose mark takes all operations for applied",
        "oplog/group_commit.py",
        "partial(self._pending.commit, self._succeeded, unknown=self._unknown)",
        "partial(self._pending.commit, None, unknown=self._unknown)",
        f"{GROUPS}::test_the_mark_tells_apart_applied_failed_and_unknown_operations",
    ),
    Defect(
        "a group that is marked without the outcome of its operations",
        "oplog/group_commit.py",
        "            has_all = (await asyncio.wait({self._all}, timeout=GROUP_SECONDS))[0]\n",
        "            has_all = {self._all}\n",
        f"{GROUPS}::test_no_mark_is_written_before_the_last_outcome",
    ),
    Defect(
        "a cancelled call whose operations the mark of its group takes for applied",
        "oplog/group_commit.py",
        "        if self.is_given_up:\n            self._settle(())\n",
        "        if self.is_given_up:\n            self._settle(self.ids)\n",
        f"{GROUPS}::test_a_call_that_is_cancelled_while_its_group_is_written_counts_as_failed",
    ),
    Defect(
        "a slow operation whose entry the mark of its group removes",
        "oplog/group_commit.py",
        "self._is_shared = len(calls) > 1",
        "self._is_shared = True",
        f"{GROUPS}::test_a_slow_call_that_is_alone_in_its_group_stays_pending",
    ),
    Defect(
        "groups that are all written at once",
        "oplog/group_commit.py",
        "        if self._writes >= (WRITES if is_due else 1):\n",
        "        if self._writes >= 1 and not is_due:\n",
        f"{GROUPS}::test_few_groups_are_written_at_once",
    ),
    Defect(
        "a run of segments over a gap, whose operations nobody would read",
        "oplog/segment_ids.py",
        "runs[start - 1][1] >= first - 1",
        "runs[start - 1][1] >= first - 2",
        "tests/oplog/test_segment_ids.py",
    ),
    Defect(
        "an error document that is put into the buffer of a read",
        "backends/aws/http_answer.py",
        "self._into is not None and self.status == _PARTIAL and",
        "self._into is not None and",
        "tests/backends/aws/test_http_answer.py::test_other_bodies_do_not_get_into_the_buffer",
    ),
    Defect(
        "a buffer that is filled again while a reader or a request has a view of it",
        "storage/read_ahead.py",
        "if len(buffer) == block and _is_unused(buffer):",
        "if len(buffer) == block:",
        "tests/storage/test_read_ahead.py"
        "::test_a_buffer_is_not_used_again_while_a_view_of_it_exists",
    ),
    Defect(
        "a block whose fetch failed and whose buffer is used again",
        "storage/read_ahead.py",
        "            self.drop()\n            raise\n",
        "            self.drop()\n            buffer = block.place.obj\n"
        "            block.place.release()\n            self._buffers.append(buffer)\n"
        "            raise\n",
        "tests/storage/test_read_ahead.py"
        "::test_buffers_of_requests_that_failed_or_were_cancelled_are_not_used_again",
    ),
    Defect(
        "the rest of a block that is returned and not verified",
        "files/open_files.py",
        "        self._verify_window(data)\n",
        "",
        "tests/client/test_reader.py"
        "::test_a_file_that_is_read_in_order_is_verified_whatever_the_reads",
    ),
    Defect(
        "the rest of a block before the next one that is returned and not verified",
        "files/open_files.py",
        "        self._verify_window(head)\n",
        "",
        "tests/client/test_reader.py"
        "::test_a_file_that_is_read_in_order_is_verified_whatever_the_reads",
    ),
    Defect(
        "the rest of a block before the next one that is put into a buffer and not verified",
        "files/open_files.py",
        "        self._verify_window(head, check)\n",
        "",
        "tests/client/test_reader.py"
        "::test_a_file_that_is_read_in_order_is_verified_whatever_the_reads",
    ),
    Defect(
        "a log entry that is written and cannot be read",
        "oplog/entries.py",
        "    document = entry_document(entry)\n"
        '    _require_fields(document, _TREE_FIELDS if "directory" in document else '
        "_ENTRY_FIELDS, key)\n",
        "    document = entry_document(entry)\n",
        "tests/oplog/test_entries.py::test_exactly_what_can_be_read_is_written",
    ),
    Defect(
        "a slot that a request keeps which the fence stopped",
        "backends/retrying/request_pipeline.py",
        "            sender.limit.release(self._epoch, error)\n",
        "",
        f"{PIPELINE}::test_a_fence_stops_a_request_before_it_is_counted_and_gives_its_slot_back",
    ),
    Defect(
        "an answer that is used though the volume was locked before it came",
        "backends/retrying/request_pipeline.py",
        "            if is_answer and fence is not None and fence.late():",
        "            if False:",
        f"{PIPELINE}::test_an_answer_that_comes_late_through_a_closed_fence_is_no_answer",
    ),
    Defect(
        "a suffix count that is not compared",
        "volumes/volume.py",
        '        "suffix_count": config.suffix_count,\n        "hash": config.hash,\n',
        '        "hash": config.hash,\n',
        "tests/test_volumes.py::test_what_differs_from_the_record_is_named_and_changes_nothing",
    ),
    Defect(
        "an answer whose checksum is not compared",
        "backends/dynamodb/dynamodb_wire.py",
        "    if announced is not None and announced != _native.crc32(answer.body):",
        "    if False:",
        "tests/backends/test_dynamodb_wire.py::test_a_refusal_with_another_checksum",
    ),
    Defect(
        "keys that a batch left out and nobody asks for again",
        "backends/retrying/retrying_items.py",
        "                found.update(error.found)\n                left = error.left\n            "
        "    raise",
        "                found.update(error.found)",
        "tests/backends/test_dynamodb_pages.py::test_what_a_batch_leaves_out_is_asked_for_again",
    ),
    Defect(
        "bytes whose checksum is not compared",
        "files/file_ranges.py",
        "    if checksum != entry.checksum:",
        "    if False:",
        "tests/client/test_reader.py::test_damaged_bytes",
    ),
    Defect(
        "an operation under way that fsck takes for damage",
        "integrity/facts.py",
        "        return time_ms > self.now_ms - self.grace_ms",
        "        return False",
        f"{CRASH}::test_what_may_be_under_way_is_no_finding",
    ),
    Defect(
        "a transaction that goes on without its lease",
        "txn/txn_record.py",
        "        if self.expired:\n            raise LeaseExpiredError(",
        "        if False:\n            raise LeaseExpiredError(",
        "tests/namespace/test_hard_races.py::test_a_transaction_with_an_expired_lease_does_not_get_it_back",
    ),
    Defect(
        "a transaction that is published though it was aborted",
        "txn/txn_record.py",
        '        condition = Condition(equals={"state": "preparing", "owner": txn.owner})',
        "        condition = Condition()",
        "tests/txn/test_late.py::test_a_late_publish_finds_the_transaction_aborted",
    ),
    Defect(
        "an intent that is applied though it is gone",
        "txn/intent_resolver.py",
        "        key, held = keys.of(entry), Condition(equals={NEXT: entry.pending})",
        "        key, held = keys.of(entry), Condition()",
        "tests/txn/test_late.py::test_a_late_resolution_leaves_later_changes",
    ),
    Defect(
        "a listing that is not read a second time",
        "namespace/consistent_listing.py",
        "            if await view.is_unchanged():",
        "            if True:",
        "tests/namespace/test_consistent_listing.py::test_a_transaction_between_two_requests_is_seen_completely_or_not_at_all",
    ),
    Defect(
        "unpublished changes of a transaction are seen",
        "txn/intent_view.py",
        "            elif intent.new_state == (REMOVED if record.is_published else CREATED):",
        "            elif intent.new_state == (REMOVED if record.is_published else None):",
        "tests/txn/test_intent_view.py::test_an_entry_with_an_intent_shows_the_side_of_its_transaction",
    ),
    Defect(
        "a damaged log object that is removed and not kept",
        "integrity/repair_actions.py",
        "            await blobs.copy(blobs, key, name)",
        "            pass",
        "tests/integrity/test_repair.py::test_a_damaged_log_object_is_kept_in_quarantine",
    ),
    Defect(
        "garbage that is not looked at again before it is deleted",
        "integrity/gc_sweep.py",
        "            named = await self._named(left) | await self._named(left)",
        "            named: set[str] = set()",
        "tests/integrity/test_collect_races.py::test_what_the_scan_missed_is_found_where_the_log_has_seen_it",
    ),
    Defect(
        "garbage that the log has named since",
        "integrity/gc_sweep.py",
        "            changed = await self._news.of(left)",
        "            changed: set[str] = set()",
        "tests/integrity/test_collect_races.py::test_what_was_moved_since_it_was_marked_is_in_the_logs_news",
    ),
    Defect(
        "garbage that is swept though its verdict is to keep it",
        "integrity/gc_sweep.py",
        "lambda verdict: not verdict.is_deletable",
        "lambda verdict: False",
        "tests/integrity/test_collect.py"
        "::test_a_candidate_whose_verdict_does_not_allow_deletion_is_kept",
    ),
    Defect(
        "garbage that is swept as soon as it is marked",
        "integrity/gc_sweep.py",
        "lambda verdict: verdict.since_ms + grace_ms > self._now_ms",
        "lambda verdict: False",
        "tests/integrity/test_collect.py::test_a_reader_keeps_the_bytes_of_a_file_that_was_deleted_for_a_grace_period",
    ),
    Defect(
        "garbage that is looked at once before it is deleted",
        "integrity/gc_sweep.py",
        "            named = await self._named(left) | await self._named(left)",
        "            named = await self._named(left)",
        "tests/integrity/test_collect_races.py::test_what_moves_between_two_requests_of_one_reading_is_seen_by_the_next",
    ),
    Defect(
        "a transaction of the table of which a listing sees a part",
        "namespace/multi_path_commit.py",
        "    if len(plan.rows) > 1:",
        "    if len(plan.rows) > 1_000:",
        "tests/client/test_transaction_races.py::test_between_any_two_requests_of_a_listing_it_happens_wholly",
    ),
    Defect(
        "a new file that is left without a directory",
        "namespace/store.py",
        "            return await self.recreate_parents(entry, chain)",
        "            return entry",
        "tests/namespace/test_hard_races.py::test_a_creation_that_was_seen_gets_its_directory_back",
    ),
    Defect(
        "the record of a transaction that was cancelled before it began",
        "txn/txn_record.py",
        "            txn.over = True  # no entry carries an intent of it",
        "            raise",
        "tests/txn/test_late.py::test_a_transaction_that_is_cancelled_while_its_record_is_written_leaves_none",
    ),
    # Data at risk: what testers from outside had found.
    Defect(
        "a volume whose keys carry no owner",
        "txn/volume_record.py",
        '    return f"{SCOPE}{volume_id}/" if SCOPED in flags else ""',
        '    return ""',
        "tests/test_ownership.py::test_no_listing_goes_outside_of_the_volumes_own_prefix",
    ),
    Defect(
        "a copied table that uses the original's location",
        "volumes/volume.py",
        "            await require_claim(place, record, table_identity(config, config.data))",
        "            pass",
        "tests/test_ownership.py::test_a_copied_table_cannot_use_the_location",
    ),
    Defect(
        "a location with another volume's objects that is taken",
        "volumes/creation.py",
        "            await require_unclaimed(place, adopting=adopting)",
        "            pass",
        "tests/test_ownership.py::test_a_location_with_objects_of_another_volume_is_refused",
    ),
    Defect(
        "an older volume that collects what its log does not name",
        "integrity/gc_mark.py",
        "        if not self._place.scoped and not verdict.operations:",
        "        if False:",
        "tests/test_ownership.py::test_an_older_volume_still_collects_what_its_log_names",
    ),
    Defect(
        "a native volume in a table whose kind nothing states",
        "volumes/creation.py",
        "    if config.kind is None:",
        "    if False:",
        "tests/test_volumes_legacy.py::test_init_does_not_guess_whose_an_empty_table_is",
    ),
    Defect(
        "an adopted object that was replaced and is read",
        "storage/physical.py",
        "    return etag if etag and is_uri(physical) else None",
        "    return None",
        "tests/client/test_adopting.py::test_a_replaced_object_is_never_read",
    ),
    Defect(
        "an encryption that is asked for and not sent",
        "backends/aws/encryption.py",
        "    if aws.encryption is None:",
        "    if True:",
        "tests/backends/test_s3_encryption.py::test_what_is_stored_says_how_it_is_encrypted",
    ),
    Defect(
        "calls that are cut off when the client closes",
        "_core/active_calls.py",
        "        if not await self._idle(seconds):",
        "        if not await self._idle(0.0):",
        "tests/client/test_closing.py::test_leaving_waits_for_writes_under_way",
    ),
    Defect(
        "a source that is deleted though it was written anew since it was copied",
        "bulk/expected_objects.py",
        "        if self.version is not None and found.version != self.version:",
        "        if False:",
        "tests/client/test_transfer.py::test_what_another_client_writes_at_any_step_of_a_move_is_kept",
    ),
    Defect(
        "a redirect that is taken for an answer",
        "backends/aws/service_answers.py",
        "    if not 300 <= status < 400 or status == 304:",
        "    if True:",
        "tests/backends/aws/test_redirects.py::test_a_redirect_is_an_error_that_names_the_hosts",
    ),
    Defect(
        "a connection that is used again after bytes of no answer",
        "backends/aws/connection_pool.py",
        "        return is_sent and parser.is_persistent",
        "        return True",
        "tests/backends/aws/test_connection_pool.py"
        "::test_bytes_that_belong_to_no_answer_end_a_connection",
    ),
    Defect(
        "a connection that is used again after a cancelled request",
        "backends/aws/direct_http.py",
        "        is_usable = False",
        "        is_usable = True",
        "tests/backends/aws/test_connection_pool.py"
        "::test_a_cancellation_at_any_time_leaves_the_pool_whole",
    ),
    Defect(
        "an answer with a length beside a transfer coding",
        "backends/aws/http_answer.py",
        '            coding.lower() != "chunked" or length is not None or version == b"0"',
        '            coding.lower() != "chunked" or version == b"0"',
        "tests/backends/aws/test_http_answer.py::test_malformed_answers",
    ),
    Defect(
        "a local pipe that is replaced by a file",
        "_core/file_replacement.py",
        "    if not stat.S_ISREG(mode):",
        "    if False:",
        "tests/client/test_local_targets.py::test_a_pipe_is_not_replaced",
    ),
    Defect(
        "an active transaction whose log is removed",
        "integrity/repair_actions.py",
        "            if name.txn and await self._store.transactions.record(name.txn) is not None:",
        "            if False:",
        "tests/integrity/test_interrupted.py"
        "::test_a_transaction_that_begins_after_the_scan_of_the_table_is_not_changed",
    ),
    Defect(
        "a deletion that is undone between two repairs",
        "integrity/repair_actions.py",
        "        if await self._was_changed(facts):",
        "        if False:",
        "tests/integrity/test_repair.py"
        "::test_what_changes_between_the_look_and_the_write_is_not_put_back",
    ),
    Defect(
        "a directory rename that does not require the ancestors of its source",
        "layouts/tree/directory_changes.py",
        "[self._above(old), self._above(new)]",
        "[self._above(old)[-1:], self._above(new)]",
        "tests/layouts/test_directory_races.py::test_no_directory_leaves_a_deleted_one",
    ),
    Defect(
        "a directory rename that does not require the ancestors of its target",
        "layouts/tree/directory_changes.py",
        "[self._above(old), self._above(new)]",
        "[self._above(old), self._above(new)[-1:]]",
        f"{DIRECTORY_RACES}[below each other]",
    ),
    Defect(
        "a change of a directory that neither touches nor requires its parents",
        "namespace/required_directories.py",
        "[store.touching(each, stamp) for each in self.touched]",
        "[]",
        f"{DIRECTORY_RACES}[into each other]",
    ),
    Defect(
        "a change of a directory that requires its parents and does not touch them",
        "namespace/required_directories.py",
        "[store.touching(each, stamp) for each in self.touched]",
        "[one for each in self.touched for one in store.require_parent(each)]",
        "tests/layouts/test_directory_changes.py::test_the_actions_of_a_rename",
    ),
    Defect(
        "a change of a directory whatever its version is",
        "layouts/tree/directory_changes.py",
        "when or unchanged(directory)",
        'when or Condition(equals={"id": directory.id})',
        "tests/layouts/test_directory_changes.py"
        "::test_a_directory_that_is_moved_away_and_back_meanwhile_has_the_next_version",
    ),
    Defect(
        "a transaction of several files that does not require the directories above",
        "namespace/multi_path_commit.py",
        "plan.parents(), [*plan.required, *plan.above]",
        "plan.parents(), plan.required",
        f"{TRANSACTIONS}"
        "::test_several_files_are_not_split_by_the_deletion_of_a_directory_above[in one]",
    ),
    Defect(
        "a manifest that lists paths",
        "namespace/multi_path_commit.py",
        "divided([change.entry_key for change in plan.rows], trees)",
        "divided([change.path for change in plan.rows], trees)",
        f"{TRANSACTIONS}::test_a_removed_directory_is_restored_from_the_trash",
    ),
    Defect(
        "a recorded transaction that does not read the directories above its sources again",
        "namespace/multi_path_commit.py",
        "            await self._confirm(self._plan.required)",
        "            await self._confirm([])",
        f"{TRANSACTIONS}::test_a_broken_chain_is_found_before_new_items_are_put",
    ),
    Defect(
        "a record that is published whatever became of the directories above",
        "namespace/multi_path_commit.py",
        "[*removals, *checks[:free]]",
        "removals",
        f"{TRANSACTIONS}"
        "::test_several_files_are_not_split_by_the_deletion_of_a_directory_above[by a record]",
    ),
    Defect(
        "directories that exceed a publication and are not read right before it",
        "namespace/multi_path_commit.py",
        "        if len(checks) > free:",
        "        if len(checks) < 0:",
        f"{TRANSACTIONS}::test_directories_beyond_one_publication_are_read_again",
    ),
    Defect(
        "data that is deleted before the staged entries that have it",
        "transaction.py",
        "        if self._keeps_data:\n            return\n",
        "",
        f"{CRASH}::test_a_lost_answer_at_every_call[transaction:new directories-tree]",
    ),
    Defect(
        "a staged directory that is removed while its transaction is live",
        "layouts/tree/tree_trash.py",
        "            if record is not None and transactions.lease_runs(record):\n"
        "                return\n",
        "",
        f"{STAGED}::test_nobody_sees_anything_before_the_commit",
    ),
    Defect(
        "content of a staged directory that is stored without a check of the record's owner",
        "layouts/tree/staged_commit.py",
        "        actions = [*puts, self._txn.can_be_published]",
        "        actions = list(puts)",
        f"{STAGED}::test_a_write_that_arrives_after_the_takeover_is_refused",
    ),
    Defect(
        "staged directories that are published without a check of the record's owner",
        "layouts/tree/staged_commit.py",
        "lambda: store.transactions.publish(self._txn, actions), first=1",
        "lambda: store.items.transact(actions, store.runtime.uuid())",
        f"{STAGED}::test_a_write_that_arrives_after_the_takeover_is_refused",
    ),
    Defect(
        "a staged directory that is found by fsck without its content",
        "integrity/scans.py",
        "            if scope.check.is_staged(item, entry):",
        "            if False:",
        f"{STAGED}::test_fsck_finds_nothing_wrong_with_a_live_staged_directory",
    ),
    Defect(
        "a restore that shows the content of a directory that was not published",
        "layouts/tree/tree_restore.py",
        "            self._drop_unpublished()\n",
        "",
        f"{STAGED}::test_a_lost_table_is_restored_without_what_was_not_published",
    ),
    Defect(
        "staged directories that are logged before their content",
        "layouts/tree/staged_commit.py",
        "            await self._put_content()\n"
        "        # Last: the log must not have the directories before all of their content.\n"
        "        await self._log.run_parts(self._operations(), _all_done)\n",
        "            await self._log.run_parts(self._operations(), _all_done)\n"
        "            await self._put_content()\n",
        f"{STAGED}::test_a_lost_table_is_restored_without_what_was_not_published",
    ),
    Defect(
        "a replaced directory that is replaced again by a repetition",
        "namespace/commit_planning.py",
        "                if current is not None and _is_there(mutation, current):\n"
        "                    left",
        "                if False:\n                    left",
        f"{STAGED}::test_a_repeated_replacement_of_unknown_outcome_replaces_nothing",
    ),
    Defect(
        "an adopted object that shows a replacement which has not happened",
        "namespace/commit_planning.py",
        'isinstance(mutation, WriteFile) and mutation.source != "adopted"',
        "isinstance(mutation, WriteFile)",
        f"{STAGED}::test_an_object_that_was_adopted_before_does_not_show_a_replacement",
    ),
    Defect(
        "a replacement that is refused after a conflict with other transactions",
        "namespace/multi_path_commit.py",
        "        if conflict is not None:",
        "        if False:",
        f"{STAGED}::test_a_replacement_that_loses_to_other_transactions_is_repeated",
    ),
    Defect(
        "a published directory whose reclamation is logged",
        "layouts/tree/tree_trash.py",
        "            elif is_left:\n",
        "            else:\n",
        f"{STAGED}::test_a_directory_that_is_published_while_garbage_is_collected_is_left_alone",
    ),
    Defect(
        "a transaction that another client aborted and that stays pending in the log",
        "namespace/recorded_change.py",
        "                removed = await transactions.record(self._txn.id) is None\n",
        "                pass\n",
        f"{STAGED}::test_a_client_that_takes_the_transaction_over_removes_everything",
    ),
    Defect(
        "a transaction that garbage collection aborted and that stays pending in the log",
        "layouts/tree/tree_trash.py",
        "                    await store.changes.log.withdraw(record.id)\n",
        "                    pass\n",
        f"{STAGED}::test_a_table_that_is_lost_after_garbage_collection_is_restored_as_it_was",
    ),
    Defect(
        "a second item for a directory that is being staged",
        "layouts/tree/tree_check.py",
        "        if await store.items.get(in_trash) is not None:",
        "        if False:",
        f"{STAGED}::test_a_directory_that_is_staged_during_a_check_is_not_made_again",
    ),
    Defect(
        "an item in the trash that is believed before its transaction is published",
        "layouts/tree/tree_parents.py",
        "if item is not None and not held:",
        "if item is not None:",
        f"{TRANSACTIONS}::test_an_intent_in_the_trash_is_resolved_before_a_creator_relies_on_it",
    ),
    Defect(
        "a directory that is restored while it is being reclaimed",
        "layouts/tree/trash_items.py",
        "            missing=(NEXT, _STATE),",
        "            missing=(NEXT,),",
        "tests/layouts/test_directory_changes.py"
        "::test_what_is_being_reclaimed_or_was_removed_as_empty_is_not_restored",
    ),
    Defect(
        "a chain that is confirmed by ids alone",
        "layouts/tree/directory_cache.py",
        "            and entry.version == self.version\n",
        "",
        f"{CHAINS}::test_the_directories_of_a_chain_were_in_place_at_one_moment",
    ),
    Defect(
        "a change that trusts directories",
        "layouts/tree/chain_resolver.py",
        "            if trusting and self._trust:",
        "            if self._trust:",
        f"{TRUST}::test_no_change_and_no_listing_trusts",
    ),
    Defect(
        "directories that are trusted for ever",
        "layouts/tree/chain_resolver.py",
        "                    route.trust(sent - self._trust)",
        "                    route.trust(0.0)",
        f"{TRUST}::test_a_former_path_is_shown_for_the_time_and_no_longer",
    ),
    Defect(
        "a path that is missing below trusted directories",
        "layouts/tree/chain_resolver.py",
        "(route.trusted and not _is_there(resolved))",
        "False",
        f"{TRUST}::test_what_is_not_found_is_resolved_from_the_root",
    ),
    Defect(
        "a parent that is trusted",
        "layouts/tree/chain_resolver.py",
        "self.known[:-1] if self.is_complete",
        "self.known if self.is_complete",
        f"{TRUST}::test_a_change_of_the_parent_and_changes_of_the_client_itself_are_seen",
    ),
    Defect(
        "a directory cache that is believed",
        "layouts/tree/chain_resolver.py",
        "            if not known.is_still(entry):",
        "            if not isinstance(entry, Entry):",
        f"{CHAINS}::test_the_directories_of_a_chain_were_in_place_at_one_moment",
    ),
    Defect(
        "an entry with the path under which another call expects its directory",
        "layouts/tree/chain_resolver.py",
        "    return entry if entry.path == path else replace(entry, path=path)",
        "    return entry",
        f"{CHAINS}::test_one_directory_under_its_old_and_its_new_path",
    ),
    Defect(
        "a listing that does not look again at what is above its top",
        "namespace/consistent_listing.py",
        "if _place(current[key]) != place",
        "if False",
        "tests/layouts/test_listings.py"
        "::test_what_is_created_after_a_rename_above_the_top_is_not_listed_at_the_old_path",
    ),
    Defect(
        "a late overwrite of what the path led to before",
        "namespace/store.py",
        "                await self.confirm([entry], chain.since.monotonic)",
        "                pass",
        "tests/layouts/test_files.py"
        "::test_a_late_write_is_not_made_in_a_directory_that_was_renamed_before[overwrite]",
    ),
    Defect(
        "a condition on a directory without its id",
        "layouts/tree/tree_reads.py",
        'equals={"isdir": True, "id": directory.key}',
        'equals={"isdir": True}',
        "tests/layouts/test_files.py::test_a_file_is_moved_into_the_directory_that_is_at_the_path",
    ),
    Defect(
        "a trash that is asked by a read",
        "layouts/tree/tree_parents.py",
        "                await store.items.transact([Check(key, ABSENT)], store.runtime.uuid())",
        "                if item := await store.items.get(key):\n"
        "                    return TrashedDirectory.from_item(item, store.keys).why",
        "tests/layouts/test_files.py::test_the_trash_is_not_asked_by_a_read",
    ),
    Defect(
        "a directory that is not looked at after a creation in it",
        "layouts/tree/tree_parents.py",
        "        return chain.parent.path == ROOT or await self._shared.ask(chain.parent)",
        "        return True",
        "tests/layouts/test_files.py"
        "::test_a_file_in_a_removed_directory_is_moved_and_keeps_its_object",
    ),
    Defect(
        "a creation that is relocated out of a deleted directory",
        "layouts/tree/tree_parents.py",
        'await self._removed_as(gone, entry.path) == "empty"',
        "await self._removed_as(gone, entry.path) is not None",
        "tests/layouts/test_files.py::test_a_file_in_a_deleted_directory_stays_there",
    ),
    Defect(
        "a lost answer of the trash that is taken for an answer",
        "layouts/tree/tree_parents.py",
        "                await race.lost(error)  # after a lost response",
        "                return None  # after a lost response",
        "tests/layouts/test_files.py::test_every_lost_answer_around_a_relocation",
    ),
    Defect(
        "a conflict while the trash is asked that is taken for an answer",
        "layouts/tree/tree_parents.py",
        "            except TransactionConflictError:\n"
        "                await race.lost(ObstructedError(path))",
        "            except TransactionConflictError:\n                return None",
        "tests/layouts/test_files.py::test_a_conflict_while_the_trash_is_asked_is_no_answer",
    ),
    Defect(
        "a rename that is undone without the check of its directory",
        "layouts/tree/tree_parents.py",
        "store.plan_directories(made, [lowest])",
        "store.plan_directories(made, [])",
        "tests/layouts/test_files.py"
        "::test_a_rename_is_undone_into_the_current_directory_of_its_source",
    ),
    Defect(
        "files of a batch that are published after their leases",
        "namespace/file_batches.py",
        "        self._refuse_expired()\n",
        "",
        "tests/namespace/test_hard_races.py"
        "::test_of_many_files_those_are_refused_whose_leases_expire_during_the_uploads",
    ),
    Defect(
        "directories of a moved file that are created before it is moved",
        "layouts/tree/tree_parents.py",
        "        if len(made) > CHAIN_PART:",
        "        if made:\n            await store.need_directory(made[-1].path)\n"
        "        if False:",
        "tests/layouts/test_files.py"
        "::test_a_file_that_another_client_has_deleted_meanwhile_is_not_written_again",
    ),
    Defect(
        "a move of a file onto itself",
        "namespace/store.py",
        "        if moved.entry_key == source.entry_key:",
        "        if False:",
        "tests/layouts/test_files.py"
        "::test_a_source_and_a_target_that_are_one_file_after_a_rename_are_read_again",
    ),
    Defect(
        "a read that does not wait for a removal",
        "layouts/tree/tree_reads.py",
        "            for resolved in found\n",
        "            for resolved in found[:0]\n",
        f"{REMOVALS}::test_a_new_file_is_not_seen_before_a_removal_has_ended[by_path-True]",
    ),
    Defect(
        "a listing that does not wait for a removal",
        "namespace/consistent_listing.py",
        "self._contradictory or self.removed:",
        "self._contradictory:",
        f"{REMOVALS}::test_a_file_that_was_seen_stays[by_wildcard]",
    ),
    Defect(
        "a creator that lets the removal of its directory go on",
        "txn/intent_resolver.py",
        "(not end_removal and self._transactions.lease_runs(record))",
        "self._transactions.lease_runs(record)",
        f"{REMOVALS}::test_the_creator_ends_the_removal_of_a_directory_that_is_not_empty",
    ),
    Defect(
        "a removal that is refused because of a file that may be moved",
        "namespace/directories.py",
        " and not await self.layout.is_leaving(entry)",
        "",
        f"{REMOVALS}::test_a_removal_is_not_refused_because_of_a_file_that_may_be_moved",
    ),
    Defect(
        "an exclusive creation that is refused because of a file that may be moved",
        "namespace/store.py",
        "if parents and await self.layout.is_leaving(parents[0]):",
        "if False:",
        f"{REMOVALS}::test_an_exclusive_creation_is_not_refused_because_of_a_file_that_may_be_moved",
    ),
    Defect(
        "a batch of exclusive creations that is refused because of a file that may be moved",
        "namespace/file_batches.py",
        "await run_all(self._reconsider, self._refused_by_content(result), limit=DIRECTORIES)",
        "pass",
        f"{REMOVALS}::test_an_exclusive_creation_is_not_refused_because_of_a_file_that_may_be_moved",
    ),
    Defect(
        "a trash without the directories of a published transaction that is not resolved",
        "layouts/tree/tree_trash.py",
        "            return trashed if record.is_published else None",
        "            return None",
        f"{TRANSACTIONS}::test_the_trash_shows_a_directory_from_its_publication_on",
    ),
    Defect(
        "a listing that keeps the last of two states of a directory",
        "namespace/consistent_listing.py",
        "                self._contradictory |= "
        "self._above.setdefault(directory.entry_key, place) != place",
        "                self._above[directory.entry_key] = place",
        "tests/layouts/test_listings.py"
        "::test_a_directory_that_was_seen_in_two_states_invalidates_the_listing",
    ),
    Defect(
        "a decision from paths of two moments",
        "namespace/commit_planning.py",
        '            if entry is not None and entry.directory not in ("", parent.key):',
        "            if False:",
        "tests/layouts/test_file_transactions.py"
        "::test_a_directory_that_is_replaced_between_the_reads_of_two_paths",
    ),
    Defect(
        "a renamed directory that a failed commit creates again",
        "namespace/multi_path_commit.py",
        "    if store.keys.by_id:\n        return\n    left",
        "    left",
        "tests/layouts/test_file_transactions.py"
        "::test_a_directory_that_was_renamed_before_a_commit_is_not_created_again",
    ),
    Defect(
        "a reclamation that does not wait for the settle time",
        "layouts/tree/reclamation.py",
        "            last = now_ms is not None and current.is_settled(now_ms)",
        "            last = now_ms is not None",
        f"{RECLAMATION}::test_the_settle_time_begins_when_collection_first_sees_the_item",
    ),
    Defect(
        "a removal marker that is dropped by the clock of the deleter",
        "layouts/tree/trash_items.py",
        "        return 0 < self.since_ms <= now_ms - SETTLE_MS",
        "        return self.when_ms <= now_ms - SETTLE_MS",
        f"{RECLAMATION}"
        "::test_a_removal_marker_goes_after_the_settle_time_by_the_clock_of_the_store",
    ),
    Defect(
        "a reclamation of a directory with the intent of a live transaction",
        "layouts/tree/reclamation.py",
        "                entry = await self._without_intent(found, shown)",
        "                entry: Entry | None = found",
        f"{RECLAMATION}"
        "::test_an_entry_with_the_intent_of_a_live_transaction_is_kept_with_all_above_it",
    ),
    Defect(
        "a reclamation that does not exclude an undelete",
        "layouts/tree/trash_items.py",
        '"ver": self.entry.version, "why": "deleted"},\n            missing=(NEXT, _STATE),',
        '"why": "deleted"},\n            missing=(NEXT,),',
        f"{RECLAMATION}::test_an_undelete_beside_a_reclamation_in_every_order_of_their_requests",
    ),
    Defect(
        "a settle time that begins before the deletion",
        "layouts/tree/tree_trash.py",
        "        async with aclosing(self._pages(tally)) as pages:\n"
        "            async for page in pages:\n"
        "                if page:\n"
        "                    now_ms = await clock()\n",
        "        now_ms = await clock()\n"
        "        async with aclosing(self._pages(tally)) as pages:\n"
        "            async for page in pages:\n"
        "                if page:\n",
        f"{RECLAMATION}::test_the_settle_time_does_not_begin_before_the_deletion",
    ),
    Defect(
        "a change of the retention that does not require the record that was read",
        "txn/volume_record.py",
        "        unchanged = Condition(equals={OPERATION: item[OPERATION]}, missing=(STATE, LOCK))",
        "        unchanged = Condition(missing=(STATE, LOCK))",
        f"{RETENTION}::test_of_two_setters_each_takes_effect_once",
    ),
    Defect(
        "a change of the retention of a locked volume",
        "txn/volume_record.py",
        "        if LOCK in item:\n"
        "            raise BusyError(locked_message(item, runtime.now_ms()), path=where)\n"
        "        before = VolumeRecord.from_item(item, where).trash_retention\n"
        "        unchanged = Condition(equals={OPERATION: item[OPERATION]}, missing=(STATE, LOCK))",
        "        before = VolumeRecord.from_item(item, where).trash_retention\n"
        "        unchanged = Condition(equals={OPERATION: item[OPERATION]}, missing=(STATE,))",
        f"{RETENTION}::test_a_change_waits_for_no_lock_and_for_no_destroyed_volume",
    ),
    Defect(
        "a change of the retention that stops garbage collection",
        "txn/volume_record.py",
        "    changeable = (RETENTION, OPERATION)",
        "    changeable = (OPERATION,)",
        f"{RETENTION}::test_gc_and_a_change_of_the_retention_do_not_disturb_each_other",
    ),
    Defect(
        "a retention that is compared as the identity of the volume",
        "txn/volume_record.py",
        "    trash_retention: int | None = field(default=None, compare=False)",
        "    trash_retention: int | None = None",
        f"{RETENTION}::test_it_is_no_part_of_the_identity_of_a_volume",
    ),
    Defect(
        "a collection that uses the retention of when the volume was created",
        "integrity/gc_sweep.py",
        "            retention = record.trash_retention or 0",
        "            retention = 86_400",
        f"{RETENTION}::test_gc_reclaims_by_the_retention_of_the_volume_unless_told_otherwise",
    ),
    Defect(
        "a recursive removal that always deletes the files",
        "cli/commands/change_verbs.py",
        "        retention = 0 if skip_trash else client.config.trash_retention\n"
        "        done = await client.delete(",
        "        retention = 0\n        done = await client.delete(",
        "tests/cli/test_changes.py::test_rm_r_moves_a_directory_into_the_trash",
    ),
    Defect(
        "an unreachable entry that is removed before the settle time",
        "integrity/recheck.py",
        "    settled_ms = facts.now_ms - max(scope.grace_ms, scope.check.settle_ms)",
        "    settled_ms = facts.now_ms - scope.grace_ms",
        f"{REPAIR_TREE}::test_a_file_in_a_directory_removed_as_empty_is_removed[memory]",
    ),
    Defect(
        "a recheck that does not compare the log",
        "integrity/recheck.py",
        "        fresh += [each for each in looked if each.log_state == known[each.object_id]]",
        "        known = {each.object_id: each.log_state for each in looked}\n"
        "        fresh += looked",
        f"{REPAIR_TREE}::test_a_directory_that_moves_during_the_scan_and_again_after_it_is_no_finding[memory]",
    ),
    Defect(
        "a repair that does not read again what its scan has found",
        "integrity/recheck.py",
        "            for each in await fresh_facts(scope, suspects, tail)\n"
        "            if (found := decide(each))",
        "            for each in suspects\n            if (found := decide(each))",
        f"{REPAIR_TREE}::test_a_directory_that_moves_at_any_two_calls_of_a_repair_is_left[9]",
    ),
    Defect(
        "a note on the trash that does not ask for the retention",
        "integrity/verify_rules.py",
        "max(2 * self.facts.retention_ms, DAY_MS)",
        "DAY_MS",
        f"{REPAIR_TREE}::"
        "test_how_long_a_directory_may_stay_in_the_trash_follows_from_the_retention[864000-20]",
    ),
    Defect(
        "a volume record with a flag of a later version that is opened",
        "txn/volume_record.py",
        "[flag for flag in flags if flag not in FLAGS]",
        "[]",
        "tests/layouts/test_other_versions.py::test_an_unknown_flag_is_refused[record-path]",
    ),
    Defect(
        "a directory in the trash that fsck takes for missing",
        "layouts/tree/tree_check.py",
        '.why == "deleted"',
        '.why == "staged"',
        f"{REPAIR_TREE}::test_a_healthy_tree_with_a_trash_has_no_findings[memory]",
    ),
    Defect(
        "a removal marker that fsck takes for a directory",
        "layouts/tree/tree_check.py",
        "        if entry.directory != TRASH_ID:\n            return True",
        "        if True:\n            return True",
        f"{REPAIR_TREE}::test_a_healthy_tree_with_a_trash_has_no_findings[memory]",
    ),
    Defect(
        "a trash whose items fsck finds without a parent",
        "layouts/tree/tree_check.py",
        "frozenset({ROOT_ENTRY.id, TRASH_ID})",
        "frozenset({ROOT_ENTRY.id})",
        f"{REPAIR_TREE}::test_a_healthy_tree_with_a_trash_has_no_findings[memory]",
    ),
    Defect(
        "a removal of one of two items without the condition on the other",
        "integrity/repair_actions.py",
        "            Check(keys.of(keeper), unchanged(keeper)),\n",
        "",
        f"{REPAIR_TREE}::test_an_item_of_two_is_kept_if_the_other_has_gone_since[memory]",
    ),
    Defect(
        "a broken cycle without conditions on the other directories",
        "layouts/tree/tree_check.py",
        "            *(Check(store.keys.of(each), unchanged(each)) for each in others),\n",
        "",
        f"{REPAIR_TREE}::test_a_cycle_that_was_broken_since_is_left_as_it_is[memory]",
    ),
    Defect(
        "a directory at two places that stays where the log does not have it",
        "integrity/verify_rules.py",
        "(entry.entry_key != logged, -entry.version, entry.path)",
        "(entry.entry_key == logged, -entry.version, entry.path)",
        f"{REPAIR_TREE}::test_a_directory_at_two_places_stays_where_the_log_has_it[memory]",
    ),
    Defect(
        "a missing directory that is made under another id",
        "layouts/tree/tree_check.py",
        "replace(blank, id=key, version=version)",
        "replace(blank, version=version)",
        f"{REPAIR_TREE}::test_a_directory_that_the_log_does_not_know_gets_an_item_with_its_id[memory]",
    ),
    Defect(
        "a check of a subtree that goes on without the directories above it",
        "integrity/collector.py",
        "        await self.scope.check.begin(self.scope.path)",
        '        if "table" not in self._done:\n'
        "            await self.scope.check.begin(self.scope.path)",
        f"{REPAIR_TREE}::test_a_subtree_without_a_log_has_no_findings_after_an_interruption",
    ),
    Defect(
        "a directory in the trash that fsck takes for clean",
        "integrity/collector.py",
        "self._undecided(number, adopted, list(trash))",
        "self._undecided(number, adopted, [])",
        f"{CLEAN_OBJECTS}::test_everything_else_is_left_to_the_rules",
    ),
    Defect(
        "adopted data that fsck takes for that of the object in its key",
        "integrity/collector.py",
        "self._undecided(number, adopted, list(trash))",
        "self._undecided(number, set(), list(trash))",
        f"{CLEAN_OBJECTS}::test_everything_else_is_left_to_the_rules",
    ),
    Defect(
        "an object without a record that fsck takes for one of a volume without a log",
        "integrity/collector.py",
        """                trash,
                self.scope.log is not None,""",
        """                trash,
                bool(self.shuffle.lines("records", number)),""",
        f"{CLEAN_OBJECTS}::test_without_a_log_an_entry_and_its_data_are_clean",
    ),
    Defect(
        "a volume of the old system of which fsck takes objects for clean",
        "integrity/collector.py",
        "        if not self.scope.is_legacy:",
        "        if True:",
        f"{CLEAN_OBJECTS}::test_a_volume_of_the_old_system_is_left_to_the_rules",
    ),
    Defect(
        "a missing parent in a dump with another id at each load",
        "migrate/dump_directories.py",
        """        if self._keys.by_id:
            # Entries of an interrupted load""",
        """        if False:
            # Entries of an interrupted load""",
        f"{BETWEEN_LAYOUTS}::test_files_that_were_loaded_before_their_parent_are_in_it_after_another_load",
    ),
    Defect(
        "a directory id at two paths of a dump that is loaded twice",
        "migrate/dump_directories.py",
        "        if self._ids.place(directory.id) is not None:",
        "        if False:",
        f"{BETWEEN_LAYOUTS}::test_a_directory_at_two_paths_gets_an_id_for_the_later_one",
    ),
    Defect(
        "a load that takes a directory for missing that it no longer remembers",
        "migrate/dump_directories.py",
        "        found = await self._directories(sorted(set(paths) - keys.keys() - {ROOT}))",
        "        found: dict[str, Entry | None] = dict.fromkeys(sorted(set(paths) - keys.keys()))",
        f"{BETWEEN_LAYOUTS}::test_directories_that_are_no_longer_remembered_are_read_again[jsonl]",
    ),
    Defect(
        "a directory id at two paths of a dump that Spark loads twice",
        "spark/load_job.py",
        "sf.row_number().over(earlier) > 1)",
        "sf.row_number().over(earlier) > 10**9)",
        f"{SPARK_LOAD}::test_missing_parents_and_ids_at_two_paths_get_the_ids_that_one_machine_gives_them",
    ),
    Defect(
        "a directory that a dump has twice",
        "migrate/dump_directories.py",
        "        if directory.path in self._known:",
        "        if False:",
        f"{BETWEEN_LAYOUTS}::test_a_directory_that_is_in_the_dump_twice_is_refused[100000]",
    ),
    Defect(
        "a dump with directory keys",
        "migrate/dump_jsonl.py",
        'replace(entry, pending="", directory="")',
        'replace(entry, pending="")',
        f"{BETWEEN_LAYOUTS}::test_dumps_of_both_layouts_have_the_same_form",
    ),
    Defect(
        "directory keys of a dump that are believed",
        "migrate/dump_jsonl.py",
        'replace(entry, directory="") if entry.directory else entry',
        "entry",
        f"{BETWEEN_LAYOUTS}::test_directory_keys_in_a_dump_are_ignored",
    ),
    Defect(
        "a dump with a path that no volume can load",
        "migrate/dump.py",
        "    for path in page.paths():",
        "    for path in ():",
        f"{BETWEEN_LAYOUTS}::test_a_path_that_has_become_too_long_is_not_dumped",
    ),
    Defect(
        "an object at two paths of a dump in one segment",
        "migrate/load_batch.py",
        "        for some in each_object_once(entries):",
        "        for some in [entries]:",
        f"{BETWEEN_LAYOUTS}::test_a_file_at_two_paths_is_left_to_fsck[tree]",
    ),
    Defect(
        "a reshard that leaves the trash where it was",
        "migrate/reshard_pass.py",
        "for item, key in self._places(items)\n            if key != key_of(item)\n        ]",
        "for item, key in self._places(items)\n"
        '            if key != key_of(item) and "0000000001-" not in key.partition\n        ]',
        f"{RESHARD}::test_the_suffix_count_of_a_volume_can_be_changed[tree-memory]",
    ),
    Defect(
        "a change of the layout whose operations differ at each attempt",
        "migrate/layout_pass.py",
        'text = f"{self.txn} {entry.id} {entry.version} {entry.entry_key}"',
        'import os\n\n        text = f"{self.txn} {entry.id} {entry.version} {os.urandom(8)!r}"',
        f"{LAYOUT_CHANGE}::test_the_layout_of_a_volume_can_be_changed[memory-tree]",
    ),
    Defect(
        "a restore of states of the layout before its change",
        "integrity/restore_rules.py",
        "    if decision.entry is None or is_current(decision.entry.entry_key):",
        "    if True:",
        f"{LAYOUT_CHANGE}::test_what_the_table_did_not_have_does_not_keep_a_restore_from_the_rest[tree]",
    ),
    Defect(
        "a change of the layout that does not need the mark",
        "migrate/layout_change.py",
        "        await self._mark(target)\n",
        "",
        f"{LAYOUT_CHANGE}::test_the_layout_of_a_volume_can_be_changed[memory-tree]",
    ),
    Defect(
        "a mark that is not checked before the layout is changed",
        "migrate/layout_change.py",
        "                    await self._mark(volume.record)\n",
        "",
        f"{LAYOUT_CHANGE}::test_a_mark_that_cannot_be_written_is_an_error[0-tree]",
    ),
    Defect(
        "a change of the layout that begins with what the log cannot hold",
        "migrate/layout_pass.py",
        "            self._check_operations(entries)\n",
        "",
        f"{LAYOUT_CHANGE}::test_an_entry_that_the_log_cannot_hold_is_refused[damage0-tree]",
    ),
    Defect(
        "a file twice in one segment of a change of the layout",
        "migrate/layout_pass.py",
        '{entry.version} {entry.entry_key}"',
        '{entry.version}"',
        f"{LAYOUT_CHANGE}::test_a_file_that_is_at_two_places_with_one_id[tree]",
    ),
    Defect(
        "a retention of the trash that survives layout path",
        "migrate/layout_change.py",
        ", (RETENTION,))",
        ")",
        f"{LAYOUT_CHANGE}::test_the_retention_of_the_trash_is_the_default_afterwards",
    ),
    Defect(
        "a lock for a change of the layout that changes nothing",
        "migrate/layout_change.py",
        "if not opened.read_only and await _has_layout(opened, layout):",
        "if False:",
        f"{LAYOUT_CHANGE}::test_no_effect_on_a_volume_of_the_layout[tree]",
    ),
    Defect(
        "states of layout path in a check of layout tree",
        "layouts/tree/tree_check.py",
        "        if not self._store.keys.is_current(entry.entry_key):",
        "        if False:",
        f"{LAYOUT_CHANGE}::test_fsck_of_a_path_where_something_was_unfinished_before[tree]",
    ),
    Defect(
        "a change of the layout that is not logged",
        "migrate/layout_change.py",
        "        await self._commit_segments()\n",
        "",
        f"{LAYOUT_CHANGE}::test_the_log_has_every_entry_in_the_new_layout[tree]",
    ),
    Defect(
        "old items that are removed without a look at their copies",
        "migrate/layout_pass.py",
        "            if copy is None or dict(copy) != each:",
        "            if False:",
        f"{LAYOUT_CHANGE}::test_an_old_item_without_an_equal_copy_is_not_removed",
    ),
    Defect(
        "a change of the layout beside an unfinished transaction",
        "migrate/layout_change.py",
        "                    await self._require_no_transaction()\n",
        "",
        f"{LAYOUT_CHANGE}::test_an_unfinished_transaction_is_refused[tree]",
    ),
    Defect(
        "a trash that a change to layout path loses",
        "migrate/layout_pass.py",
        'if trashed.why != "empty":',
        "if False:",
        f"{LAYOUT_CHANGE}::test_a_trash_with_directories_is_refused",
    ),
    Defect(
        "items of the other layout before its change",
        "migrate/layout_pass.py",
        'if self.name == "check" and len(mine) < len(items):',
        "if False:",
        f"{LAYOUT_CHANGE}::test_items_that_are_not_the_volumes_are_refused[tree]",
    ),
    Defect(
        "a directory id at two places in a change of the layout",
        "migrate/layout_pass.py",
        "            if other not in (None, each.path):",
        "            if False:",
        f"{LAYOUT_CHANGE}::test_a_directory_id_at_two_places_is_refused[tree]",
    ),
    Defect(
        "a change of the layout that makes a loss permanent",
        "migrate/layout_change.py",
        "                        await self._require_no_finding()\n",
        "                        pass\n",
        f"{LAYOUT_CHANGE}::test_what_only_the_log_knows_is_refused[entry_missing-tree]",
    ),
    Defect(
        "a cycle in a change of the layout",
        "migrate/layout_change.py",
        "                await run_sync(places.end)\n",
        "",
        f"{LAYOUT_CHANGE}::test_a_cycle_is_refused",
    ),
    Defect(
        "history of the other layout that is taken for damage",
        "table/keys.py",
        "        if not self.is_current(entry_key):",
        "        if False:",
        f"{LAYOUT_CHANGE}::test_the_layout_of_a_volume_can_be_changed[memory-tree]",
    ),
    Defect(
        "gc that looks for entry keys of the other layout",
        "integrity/gc_sweep.py",
        "sorted(filter(store.keys.is_current, paths))",
        "sorted(paths)",
        f"{LAYOUT_CHANGE}::test_gc_deletes_nothing_that_lives[tree]",
    ),
    Defect(
        "a reclamation that begins without the log",
        "layouts/tree/reclamation.py",
        "        await store.changes.run(\n"
        '            [store.changes.operation("update", current.entry, entry, begun.deletion)],\n'
        "            lambda _: store.items.write(put),\n"
        "        )\n",
        "        await store.items.write(put)\n",
        f"{RECLAMATION}::test_a_reclamation_is_in_the_log_before_anything_is_deleted",
    ),
    Defect(
        "a deletion that is logged without its attributes",
        "oplog/entries.py",
        "        document[_TRASH] = deletion_document(operation.trash)\n",
        "        from dataclasses import replace\n"
        '        document[_TRASH] = deletion_document(replace(operation.trash, by=""))\n',
        "tests/oplog/test_entries.py"
        "::test_entries_written_by_every_version_are_read_and_written_the_same",
    ),
    Defect(
        "a pending reclamation that is taken as not begun",
        "integrity/restore_rules.py",
        '        Rule(("reclamation pending",), "reclaimed", "apply", "{pending} is pending"),\n',
        "",
        f"{RESTORE_TREE}::test_of_two_pending_reclamations_one_is_taken_as_done",
    ),
    Defect(
        "a restoration from the trash that yields to a reclamation which may not have begun",
        "integrity/restore_rules.py",
        "        return bool(self.pending) and all(\n"
        '            each.trash is not None and each.trash.state == "reclaiming"',
        "        return bool(self.pending) and any(\n"
        '            each.trash is not None and each.trash.state == "reclaiming"',
        f"{RESTORE_TREE}::test_a_reclamation_and_a_restoration_that_are_pending_delete_nothing",
    ),
    Defect(
        "a pending move into the trash that is taken as done",
        "integrity/restore_rules.py",
        "            self.result is None or (_in_trash(self.result) "
        "and not _in_trash(self.states[0]))\n",
        "            self.result is None\n",
        f"{RESTORE_TREE}::test_a_pending_move_into_the_trash_is_not_carried_out",
    ),
    Defect(
        "a move into the trash that is forgotten if its path was taken",
        "integrity/restore_plan.py",
        "        if after is None:\n",
        "        if True:\n",
        f"{RESTORE_TREE}::test_a_pending_move_into_the_trash_has_happened_if_the_path_is_taken",
    ),
    Defect(
        "a restored item in the trash without the attributes of the deletion",
        "layouts/tree/tree_restore.py",
        "        if entry.directory != TRASH_ID:\n",
        "        if True:\n",
        f"{RESTORE_TREE}::test_directories_in_the_trash_have_every_attribute",
    ),
    Defect(
        "a pending rename into a deleted directory that is taken as done",
        "layouts/tree/tree_restore.py",
        "self._break_cycles() or self._leave_reclaimed() or self._leave_trash()\n",
        "self._break_cycles() or self._leave_reclaimed()\n",
        f"{RESTORE_TREE}::test_a_pending_rename_into_a_directory_is_taken_back_once_that_is_deleted",
    ),
    Defect(
        "a rename that is taken back although its path was taken",
        "layouts/tree/tree_restore.py",
        "            if self._is_free(before.entry_key) and ",
        "            if ",
        f"{RESTORE_TREE}::test_a_pending_rename_into_a_deleted_directory_has_happened_if_the_path_is_taken",
    ),
    Defect(
        "a move into the trash that is undone into a reclaimed directory",
        "layouts/tree/tree_restore.py",
        "            if self._loss(parent) == _RECLAIMED\n",
        "            if False\n",
        f"{RESTORE_TREE}::test_pending_moves_out_of_a_reclaimed_directory_have_happened",
    ),
    Defect(
        "a created directory with the id of another object",
        "integrity/restore_plan.py",
        "            if not self._is_used(identity):\n",
        "            if True:\n",
        f"{RESTORE_TREE}::test_a_made_directory_never_has_the_id_of_another_object",
    ),
    Defect(
        "a deletion that is dated back although it may not have happened",
        "integrity/restore_plan.py",
        "            if not certain:\n",
        "            if False:\n",
        f"{RESTORE_TREE}::test_a_pending_move_into_the_trash_that_is_assumed_counts_from_now",
    ),
    Defect(
        "a circle that is broken by a directory whose former place is taken",
        "layouts/tree/tree_restore.py",
        "        return bool(rows) and self._is_free(rows[0][0])\n",
        "        return bool(rows)\n",
        f"{RESTORE_TREE}::test_of_pending_renames_in_a_circle_one_whose_place_is_free_is_taken_back",
    ),
    Defect(
        "a settle time that begins before a second deletion",
        "layouts/tree/reclamation.py",
        "                now_ms = None  # may",
        "                # may",
        f"{RECLAMATION}::test_the_settle_time_does_not_begin_before_a_second_deletion",
    ),
    Defect(
        "pending renames that are restored in a circle",
        "layouts/tree/tree_restore.py",
        "        for cycle in self._index.cycles():\n",
        "        for cycle in ():\n",
        f"{RESTORE_TREE}::test_pending_renames_into_each_other_are_not_both_taken_as_done",
    ),
    Defect(
        "files that the plan of a restore over Spark cannot look for by their ids and names",
        "layouts/tree/tree_restore.py",
        '    names = ("place", "object_id", "name")',
        '    names = ("place",)',
        f"{SPARK_RESTORE}::test_a_tangled_log_is_restored_as_by_one_machine[5-True]",
    ),
    Defect(
        "a missing directory that is restored under another id",
        "layouts/tree/tree_restore.py",
        "id=key, directory=home)",
        "directory=home)",
        f"{RESTORE_TREE}::test_of_two_directories_at_one_place_the_content_is_kept",
    ),
    Defect(
        "a missing directory that is restored at a version that it had before",
        "layouts/tree/tree_restore.py",
        "1 if newest is None else newest[0] + 1",
        "1",
        f"{RESTORE_TREE}::test_a_made_directory_has_a_version_that_it_never_had",
    ),
    Defect(
        "a directory that is written after its entries",
        "layouts/tree/tree_restore.py",
        "                (depth + 1, depth),\n",
        "                (-depth - 1, depth),\n",
        f"{RESTORE_TREE}::test_what_is_below_a_renamed_directory_is_at_its_new_path",
    ),
    Defect(
        "a removal below a reclaimed directory that is undone",
        "layouts/tree/tree_restore.py",
        "        self._finish_reclaimed()\n",
        "",
        f"{RESTORE_TREE}::test_pending_removals_below_a_reclaimed_directory_are_taken_as_done",
    ),
    Defect(
        "a reclaimed directory that is dropped before its entries",
        "layouts/tree/tree_restore.py",
        '            " AND NOT EXISTS (SELECT 1 FROM claims AS child '
        'WHERE child.parent = claims.object)"\n',
        "",
        f"{RESTORE_TREE}::test_pending_removals_below_a_reclaimed_directory_are_taken_as_done",
    ),
    Defect(
        "a part of the tree that is restored without the directories above it",
        "layouts/tree/tree_restore.py",
        '            " AND object NOT IN (SELECT object FROM above)"\n',
        "",
        f"{RESTORE_TREE}::test_a_part_of_the_tree_is_known_by_the_directories_of_today",
    ),
    Defect(
        "a removal marker that a restore takes for a directory",
        "layouts/tree/tree_restore.py",
        "        self._drop_emptied()\n",
        "",
        f"{RESTORE_TREE}::test_a_removal_marker_shows_that_the_directory_was_removed",
    ),
    Defect(
        "extents: a part of an extent with the checksum of its object",
        "storage/extents.py",
        '                    checksum=each.checksum if is_whole else "",\n',
        "                    checksum=each.checksum,\n",
        f"{EXTENTS}::test_a_cut_has_exactly_the_bytes_of_its_range",
    ),
    Defect(
        "extents: neighbours of one object that are joined across a gap",
        "storage/extents.py",
        " and (last.is_hole or last.end == each.offset):",
        ":",
        f"{EXTENTS}::test_joining_changes_no_byte",
    ),
    Defect(
        "extents: an object that is too short for its extent",
        "storage/extents.py",
        ">= each.end for each in extents if each.key",
        ">= each.length for each in extents if each.key",
        f"{EXTENTS}::test_extents_are_stored_if_every_object_reaches_their_end",
    ),
    Defect(
        "extents: an append that loses what another client wrote",
        "files/edits.py",
        "            runs = _apart(before) if is_done else edit(before)\n",
        "            if not made._made:\n"
        "                runs = _apart(before) if is_done else edit(before)\n",
        f"{EDITS}::test_a_change_is_made_again_on_what_another_client_wrote",
    ),
    Defect(
        "extents: an open file that appends to another one",
        "files/edits.py",
        "            if expected and (current is None or current.id != expected):\n",
        "            if expected and current is None:\n",
        f"{EDITS}::test_an_open_file_does_not_append_to_another_one",
    ),
    Defect(
        "extents: concat without the version of the file",
        "files/edits.py",
        "        version=entry.version,\n",
        "",
        f"{EDITS}::test_a_change_is_made_again_on_what_another_client_wrote",
    ),
    Defect(
        "extents: a concat that removes its data after an unknown outcome",
        "files/edits.py",
        "            if not is_needed and not isinstance(error, OutcomeUnknownError):\n",
        "            if True:\n",
        f"{MORE}::test_after_an_unknown_outcome_no_data_is_removed",
    ),
    Defect(
        "extents: a change in place that creates directories",
        "files/edits.py",
        "    prepare = store.prepare if create else store.prepare_existing\n",
        "    prepare = store.prepare\n",
        f"{EDITS}::test_the_directories_of_a_removed_file_are_not_made_again",
    ),
    Defect(
        "extents: data for a removed file in the file that replaces it",
        "files/edits.py",
        "        if self._object_id != target.object_id:\n",
        "        if not self._object_id:\n",
        f"{MORE}::test_a_file_that_replaced_a_removed_one_can_be_changed",
    ),
    Defect(
        "extents: a compaction with a new modification time",
        "files/edits.py",
        "current.mtime_ms if current is not None and keeps_time else None",
        "None",
        f"{EDITS}::test_compaction_keeps_content_and_time",
    ),
    Defect(
        "extents: many extents that are not joined at the limit",
        "files/edits.py",
        "        joins.join(HARD_LIMIT // 2, math.inf)\n",
        "        pass\n",
        f"{EDITS}::test_many_changes_in_place_stay_below_the_limits",
    ),
    Defect(
        "extents: a lost attempt whose data stays",
        "files/edits.py",
        "                await made.drop_unused(content.physical)\n",
        "",
        f"{MORE}::test_data_of_a_lost_attempt_is_removed",
    ),
    Defect(
        "uploads: attributes that are lost at the completion",
        "files/multipart.py",
        "        attributes=_stored(upload),\n",
        "",
        f"{OBJECT_UPLOADS}::test_an_object_has_the_attributes_of_its_upload",
    ),
    Defect(
        "metadata search: a listing for each page that is in the trash",
        "bulk/entry_attributes.py",
        "    listed.found(directories)\n",
        "",
        "tests/client/test_attribute_rules.py"
        "::test_what_is_in_the_trash_costs_a_search_one_listing",
    ),
    Defect(
        "composed: a range of the wrong place of its source",
        "storage/physical.py",
        "                    piece.offset + read - start,\n",
        "                    piece.offset,\n",
        f"{COMPOSED}::test_short_extents_are_read_and_long_ones_copied",
    ),
    Defect(
        "composed: short parts that are not the last",
        "storage/upload.py",
        "        head = max(0, self._blobs.min_part - waiting) if waiting else 0\n",
        "        head = 0\n",
        f"{COMPOSED}::test_short_extents_are_read_and_long_ones_copied",
    ),
    Defect(
        "composed: the checksum of the bytes that were read only",
        "storage/upload.py",
        "            self._digest = None\n",
        "",
        f"{COMPOSED}::test_short_extents_are_read_and_long_ones_copied",
    ),
    Defect(
        "composed: an object whose size is not checked",
        "storage/upload.py",
        "        if info is not None and info.size == self.size:\n",
        "        if info is not None:\n",
        f"{COMPOSED}::test_a_composed_object_of_another_size_is_removed",
    ),
    Defect(
        "composed: an object of the wrong size that stays",
        "storage/upload.py",
        "        await self._blobs.delete(self.physical)\n",
        "",
        f"{COMPOSED}::test_a_composed_object_of_another_size_is_removed",
    ),
    Defect(
        "composed: a compaction that never ends",
        "files/edits.py",
        "        if _is_again(run) and (found := await self._covering(run[0])):\n",
        "        if _is_again(run) and (found := None):\n",
        f"{COMPOSED}::test_compaction_to_long_objects_ends",
    ),
    Defect(
        "composed: a part of an object that is taken for all of it",
        "storage/extents.py",
        "                    covers=each.covers and is_whole,\n",
        "                    covers=each.covers,\n",
        f"{COMPOSED}::test_the_unused_part_of_a_long_object_is_dropped",
    ),
    Defect(
        "composed: one extent that stays one, though it is all of its object",
        "files/edits.py",
        "    return content.size > 0 and content.physical != current.content.physical\n",
        "    return False\n",
        f"{COMPOSED}::test_an_extent_that_is_all_of_its_object_becomes_the_file",
    ),
    Defect(
        "composed: a source that is shorter than the range, in a directory",
        "backends/local/local_blobs.py",
        "                check_source(blob_info(source_key, facts), if_match, end)\n",
        "",
        f"{COMPOSED_BLOBS}::test_a_range_past_the_end_of_the_source",
    ),
    Defect(
        "extents: a hole that is read as what was in the buffer",
        "storage/physical.py",
        "            buffer[:] = bytes(len(buffer))\n            return\n",
        "            return\n",
        f"{MORE}::test_a_hole_overwrites_the_buffer_with_zeros",
    ),
    Defect(
        "extents: data whose checksum is not verified when it is read",
        "storage/physical.py",
        "        if (found := checksum_of(buffer)) != extent.checksum:\n",
        '        if (found := checksum_of(buffer)) == "":\n',
        f"{EDITS}::test_lost_and_damaged_objects_are_noticed",
    ),
    Defect(
        "extents: a copy that fails and leaves objects",
        "storage/physical.py",
        "            for key in copies.values():\n"
        "                await self.delete(key)\n"
        "            raise\n"
        "        own",
        "            raise\n        own",
        f"{MORE}::test_a_copy_of_which_an_object_is_lost_leaves_no_data",
    ),
    Defect(
        "extents: gc that knows one extent of a file",
        "integrity/references.py",
        "    for name in physical_keys(physical):\n",
        "    for name in physical_keys(physical)[:1]:\n",
        f"{GC_EXTENTS}::test_gc_of_a_volume_without_a_log_keeps_every_extent",
    ),
    Defect(
        "extents: an entry that refers to one extent when gc looks again",
        "integrity/gc_rules.py",
        "            self.history.key_of(name) == self.blob.key "
        "for name in physical_keys(entry.physical)\n",
        "            self.history.key_of(name) == self.blob.key "
        "for name in physical_keys(entry.physical)[:1]\n",
        f"{GC_EXTENTS}::test_gc_keeps_the_extents_of_a_file_that_only_the_log_knows",
    ),
    Defect(
        "extents: fsck that finds one extent of a file",
        "integrity/verify_rules.py",
        'return any(name.strip("/") == key for name in physical_keys(physical))',
        'return any(name.strip("/") == key for name in physical_keys(physical)[:1])',
        f"{GC_EXTENTS}::test_fsck_takes_no_extent_for_garbage",
    ),
    Defect(
        "extents: fsck that does not compare the sizes of objects",
        "integrity/verify_rules.py",
        "            return is_stored(physical, entry.size, sizes)\n",
        "            pass\n",
        f"{GC_EXTENTS}::test_fsck_finds_each_object_of_extents_that_is_lost",
    ),
    Defect(
        "extents: a restored file of which an object is lost",
        "integrity/restore_rules.py",
        "        return is_stored(entry.physical, entry.size, sizes)\n",
        "        return True\n",
        f"{GC_EXTENTS}::test_restore_leaves_out_a_file_of_which_an_extent_is_lost",
    ),
    Defect(
        "extents: a restore that looks for the first object of a file",
        "integrity/restore_rules.py",
        "        for key in physical_keys(state.physical)\n    }\n",
        "        for key in physical_keys(state.physical)[:1]\n    }\n",
        f"{GC_EXTENTS}::test_a_lost_table_comes_back_with_its_extents",
    ),
    Defect(
        "extents: a deep check that ends at a lost object",
        "integrity/recheck.py",
        "            continue\n        if found != checksum:\n",
        "            return None\n        if found != checksum:\n",
        f"{GC_EXTENTS}::test_fsck_reads_what_is_left_of_a_file",
    ),
    Defect(
        "index: a moved file that is not indexed",
        "namespace/metadata_index.py",
        "each.before.entry_key == each.after.entry_key",
        "True",
        f"{ATTRIBUTES}::test_a_search_finds_what_has_the_name",
    ),
    Defect(
        "index: files of a moved directory that are not indexed",
        "namespace/metadata_index.py",
        "[operations[place] for place in operations.with_metadata()]",
        "[]",
        f"{ATTRIBUTES}::test_a_search_finds_what_has_the_name",
    ),
    Defect(
        "index: a search that does not look at the entries",
        "bulk/entry_attributes.py",
        "if entry is not None and _has(entry, name):",
        "if entry is not None:",
        f"{ATTRIBUTES}::test_a_search_finds_what_has_the_name",
    ),
    Defect(
        "index: a search of everything instead of a directory",
        "bulk/entry_attributes.py",
        "if _is_below(entry, path):",
        "if True:",
        f"{ATTRIBUTES}::test_a_search_finds_what_has_the_name",
    ),
    Defect(
        "index: entries in the trash that are lost",
        "bulk/entry_attributes.py",
        "(entry.pending or _has(entry, name))",
        "entry.pending",
        f"{ATTRIBUTE_RULES}::test_what_is_in_the_trash_stays_in_the_index",
    ),
    Defect(
        "index: young items without an entry that are removed",
        "namespace/metadata_index.py",
        "[each for each in found if each.time_ms < oldest]",
        "found",
        f"{ATTRIBUTES}::test_stale_items_are_removed_when_they_are_old",
    ),
    Defect(
        "index: a page that skips what is not read yet",
        "namespace/metadata_index.py",
        "if _order(each) <= min(bounds)]",
        "]",
        f"{ATTRIBUTES}::test_pages_of_the_service_may_be_short",
    ),
    Defect(
        "index: items that fsck takes for foreign ones",
        "integrity/scans.py",
        " or partition.startswith(META_PREFIX)",
        "",
        f"{GC_ATTRIBUTES}::test_fsck_finds_nothing",
    ),
    Defect(
        "index: a load that does not fill it",
        "migrate/load_batch.py",
        "        await store.indexes.add_entries(after)\n",
        "",
        f"{GC_ATTRIBUTES}::test_a_dump_carries_attributes",
    ),
    Defect(
        "index: a restore that does not fill it",
        "volumes/restoration.py",
        "    await volume.store.indexes.add_entries(entries)\n",
        "",
        f"{GC_ATTRIBUTES}::test_a_lost_table_comes_back_with_its_attributes",
    ),
    Defect(
        "index: a change of the layout that does not fill it",
        "migrate/layout_pass.py",
        "            await volume.store.indexes.add_entries(entries)\n",
        "",
        f"{GC_ATTRIBUTES}::test_a_volume_of_the_other_layout",
    ),
    Defect(
        "attributes: a log without them",
        "oplog/entries.py",
        "_with_attributes(document, entry.attributes) if entry.attributes else document\n",
        "document\n",
        f"{GC_ATTRIBUTES}::test_a_lost_table_comes_back_with_its_attributes",
    ),
    Defect(
        "attributes: a change that undoes another one",
        "namespace/attribute_changes.py",
        "write(Put(to_item(after, store.keys), unchanged(before)))",
        "write(Put(to_item(after, store.keys), replace(unchanged(before), equals={})))",
        f"{ATTRIBUTES}::test_concurrent_changes_are_all_there",
    ),
    Defect(
        "attributes: a load into a volume that does not allow them",
        "migrate/load_batch.py",
        "if entry.attributes and not allows.attributes:",
        "if False:",
        f"{GC_ATTRIBUTES}::test_attributes_are_not_loaded_into_a_volume_without_them",
    ),
    Defect(
        "attributes: a read-only file that is deleted",
        "namespace/store.py",
        "        if named and not anywhere:\n            self.refuse_read_only(entry)\n",
        "",
        f"{ATTRIBUTES}::test_a_read_only_file_does_not_change",
    ),
    Defect(
        "attributes: a read-only file that is written",
        "namespace/store.py",
        "        self.refuse_read_only(current)\n"
        "        return self.target(path, current, chain)\n\n"
        "    async def prepare_existing",
        "        return self.target(path, current, chain)\n\n    async def prepare_existing",
        f"{ATTRIBUTES}::test_a_read_only_file_does_not_change",
    ),
    Defect(
        "attributes: a read-only file that is moved",
        "namespace/store.py",
        "        self.refuse_read_only(source, replaced)\n",
        "",
        f"{ATTRIBUTES}::test_a_read_only_file_does_not_change",
    ),
    Defect(
        "attributes: a read-only file in a transaction",
        "namespace/commit_planning.py",
        "        if not self._is_replaced(path):\n"
        "            self._store.refuse_read_only(before)\n",
        "",
        f"{ATTRIBUTES}::test_a_read_only_file_does_not_change",
    ),
    Defect(
        "attributes: a read-only file in a list to delete",
        "namespace/bulk_changes.py",
        "            if self._named:\n",
        "            if False:\n",
        f"{ATTRIBUTES}::test_a_read_only_file_does_not_change",
    ),
    Defect(
        "attributes: a read-only directory that is deleted",
        "namespace/directories.py",
        "            if named:\n",
        "            if False:\n",
        f"{ATTRIBUTES}::test_an_empty_read_only_directory_stays",
    ),
    Defect(
        "attributes: a read-only copy",
        "bulk/copying.py",
        ", read_only=False)",
        ")",
        f"{ATTRIBUTES}::test_a_copy_is_writable",
    ),
    Defect(
        "cache: a damaged block that is served",
        "storage/cache_blocks.py",
        "    if content[len(_MAGIC) : _DIGEST_END] != _digest(content[_DIGEST_END:]):\n",
        '    if content[len(_MAGIC) : _DIGEST_END] == b"":\n',
        f"{CACHED_READS}::test_a_damaged_file_is_never_served",
    ),
    Defect(
        "cache: a block that is served as another one",
        "storage/cache_blocks.py",
        "    if content[_IDENTITY : _IDENTITY + length] != name.identity:\n",
        "    if length != len(name.identity):\n",
        f"{CACHED_READS}::test_the_file_of_another_block_is_not_served",
    ),
    Defect(
        "cache: reads that do not share their requests",
        "storage/cached_reads.py",
        "(flight := self._flights.get((source.key, number, is_trusted)))",
        "(flight := self._flights.get((source.key, -1, is_trusted)))",
        f"{CACHED_READS}::test_concurrent_reads_of_an_object_fetch_it_once",
    ),
    Defect(
        "cache: a distrusted object is read by a flight that trusts the disk",
        "storage/cached_reads.py",
        "(flight := self._flights.get((source.key, number, is_trusted)))",
        "(flight := self._flights.get((source.key, number, True)))",
        f"{CACHED_READS}::test_a_read_that_distrusts_an_object_joins_no_earlier_one",
    ),
    Defect(
        "cache: only the first of several reads of wrong bytes reads the source",
        "storage/physical.py",
        "        with_cache = cache is not None and cache.trusts(extent.key)\n"
        "        await self._fill(extent, buffer)\n",
        "        await self._fill(extent, buffer)\n"
        "        with_cache = cache is not None and cache.trusts(extent.key)\n",
        f"{CACHED_READS}::test_each_of_several_reads_of_wrong_bytes_reads_the_source",
    ),
    Defect(
        "cache: a full disk that is written to again at once",
        "storage/cached_reads.py",
        "        self._paused_until = now + PAUSE_SECONDS\n",
        "        self._paused_until = now\n",
        f"{CACHED_READS}::test_a_disk_that_refuses_writes_costs_only_the_cache",
    ),
    Defect(
        "cache: adopted objects that are cached",
        "storage/physical.py",
        "        return self.cache if has_bytes and not is_uri(physical) else None\n",
        "        return self.cache if has_bytes else None\n",
        f"{CACHED_READS}::test_adopted_objects_are_not_cached",
    ),
    Defect(
        "cache: an answer that was cut off is kept",
        "storage/cached_reads.py",
        "                if len(block) == (self._length(source, number) or self._block)\n",
        "                if len(block) <= (self._length(source, number) or self._block)\n",
        f"{CACHED_READS}::test_extents_are_cached_except_an_end_of_unknown_length",
    ),
    Defect(
        "cache: the blocks used last are evicted first",
        "storage/cache_directory.py",
        "heapq.nsmallest(",
        "heapq.nlargest(",
        f"{CACHE_DIRECTORY}::test_above_it_the_blocks_unused_for_longest_go_until_the_low_one",
    ),
    Defect(
        "cache: files of others that are evicted",
        "storage/cache_directory.py",
        "                if BLOCK_NAME.fullmatch(each.name) or (\n",
        "                if BLOCK_NAME.match(each.name) or (\n",
        f"{CACHE_DIRECTORY}::test_files_of_others_are_left_alone",
    ),
    Defect(
        "cache: a use that is not recorded",
        "storage/cache_directory.py",
        "        if now / 1000 - used > TOUCH_SECONDS:\n",
        "        if not used:\n",
        f"{CACHE_DIRECTORY}::test_above_it_the_blocks_unused_for_longest_go_until_the_low_one",
    ),
    Defect(
        "objects: a page that begins with a directory it has left",
        "listing/file_pages.py",
        "        levels = [(base, begin[0])]\n",
        '        levels = [(base, "")]\n',
        f"{PAGING}::test_a_page_begins_after_any_key",
    ),
    Defect(
        "objects: a prefix without the object of that name",
        "listing/file_pages.py",
        "            return [self._name], True\n",
        "            return [self._name], False\n",
        f"{PAGING}::test_pages_hold_everything_once_in_order",
    ),
    Defect(
        "objects: a local file of which more is read than is used",
        "objects/local_bytes.py",
        "CHUNK if wanted is None else min(CHUNK, wanted))",
        "CHUNK)",
        "tests/objects/test_objects.py::test_no_more_of_an_open_file_is_read_than_asked_for",
    ),
    Defect(
        "objects: a local file that is closed while a thread writes it",
        "bulk/local_tree.py",
        "    await _to_the_end(lambda: write(descriptor, path, data))\n",
        "    await run_sync(lambda: write(descriptor, path, data))\n",
        "tests/client/test_cancelled_transfers.py::test_a_file_is_open_while_it_is_written",
    ),
    Defect(
        "objects: an upload that brings its bucket back",
        "objects/object_store.py",
        "        path = await self._new(info.bucket, info.key)\n",
        "        path = self._path(info.bucket, info.key)\n",
        "tests/objects/test_uploads.py::test_an_upload_does_not_bring_its_bucket_back",
    ),
    Defect(
        "objects: a bucket that is created by its first object",
        "objects/object_store.py",
        "        await self._need_bucket(bucket_path(bucket))\n        return path\n",
        "        return path\n",
        "tests/objects/test_objects.py::test_nothing_is_created_in_a_missing_bucket",
    ),
    Defect(
        "objects: a range that is written at the start of a new object",
        "files/range_writer.py",
        "        if self._offset and content.size:\n",
        "        if content.size > self._offset > 0:\n",
        "tests/objects/test_objects.py::test_write_copy",
    ),
    Defect(
        "uploads: a part that does not interrupt a completion",
        "files/multipart.py",
        "        await records.confirm_part(upload_id)\n",
        "        await records.need_open(upload_id)\n",
        f"{MULTIPART}::test_a_part_that_is_replaced_during_a_completion_is_in_the_file",
    ),
    Defect(
        "uploads: a token that a delayed request writes again",
        "txn/upload_records.py",
        'unchanged = Condition(equals={STATE: "open", OPERATION: upload.operation})',
        'unchanged = Condition(equals={STATE: "open"})',
        f"{MULTIPART}::test_a_request_that_arrives_again_does_not_hide_a_part",
    ),
    Defect(
        "uploads: a completion that no part can interrupt",
        "txn/upload_records.py",
        'still = Condition(equals={STATE: "open", COMPLETION: upload.completion})',
        'still = Condition(equals={STATE: "open"})',
        f"{MULTIPART}::test_a_part_that_is_replaced_during_a_completion_is_in_the_file",
    ),
    Defect(
        "uploads: an aborted upload that is published",
        "files/multipart.py",
        "await commit_mutations(store, [write], also=[records.completed(upload)])",
        "await commit_mutations(store, [write])",
        f"{MULTIPART}::test_an_upload_that_is_aborted_during_its_completion_is_not_published",
    ),
    Defect(
        "uploads: a completion that forgets the condition if it fits into no transaction",
        "namespace/multi_path_commit.py",
        "    if also:\n        raise _obstructed(store, plan, ()) from conflict\n",
        "",
        f"{MULTIPART}::test_a_completion_that_fits_into_no_transaction_gives_up",
    ),
    Defect(
        "uploads: a sweep that does not look for open uploads again",
        "integrity/gc_sweep.py",
        "        uploading = await self._uploading(left)\n",
        "        uploading: set[str] = set()\n",
        f"{GC_UPLOADS}::test_an_upload_that_is_completed_between_mark_and_sweep_is_kept",
    ),
    Defect(
        "rules: files of a directory that was moved away during a run",
        "bulk/rule_runner.py",
        "        since = None if due.by_metadata else -math.inf\n",
        "        since = None\n",
        f"{RULE_RUNS}::test_files_of_a_directory_that_is_moved_away_during_a_run_are_kept",
    ),
    Defect(
        "rules: a rule that was removed during a slow run",
        "bulk/rule_runner.py",
        "            rules = await self.index.rules.newest()\n            due = found",
        "            due = found",
        f"{RULE_RUNS}::test_a_rule_that_is_removed_during_a_slow_run_is_obeyed_no_more",
    ),
    Defect(
        "permissions: long ranges of objects that may not be read",
        "objects/byte_ranges.py",
        "    require_readable(volume_of(client).store, source)\n",
        "",
        f"{OWNERSHIP}::test_ranges_of_objects_need_the_permission_to_read",
    ),
    Defect(
        "permissions: parts of an upload whose file may not be written",
        "files/multipart.py",
        "    await _require_permission(volume, upload.path)\n    return upload\n",
        "    return upload\n",
        f"{OWNERSHIP}::test_an_upload_is_of_those_who_may_write_its_file",
    ),
    Defect(
        "permissions: a search that fails for a directory elsewhere",
        "bulk/entry_attributes.py",
        'or f"{path}/".startswith(_below(top)):',
        "or True:",
        f"{OWNERSHIP}::test_a_search_does_not_depend_on_other_directories",
    ),
    Defect(
        "uploads: an expired upload that is missing from the audit trail",
        "integrity/gc_sweep.py",
        '[{"deed": "end_upload", "id": each} for each in over]',
        '[{"deed": "end_upload", "id": each} for each in over[1:]]',
        f"{GC_UPLOADS}::test_gc_ends_uploads_that_have_expired",
    ),
    Defect(
        "uploads: the end of an expired upload that leaves its items",
        "txn/upload_records.py",
        "        await self._remove_items(upload_id, left)\n",
        "",
        f"{GC_UPLOADS}::test_gc_ends_uploads_that_have_expired",
    ),
    Defect(
        "uploads: fsck that takes parts for garbage",
        "integrity/recheck.py",
        "replace(each, uploading=True) if each.object_id in uploading else each for each in facts",
        "each for each in facts",
        f"{GC_UPLOADS}::test_fsck_has_nothing_to_say_about_an_open_upload",
    ),
    Defect(
        "permissions: owner bits that others have, too",
        "permissions.py",
        "            bits = self.mode >> 6\n",
        "            bits = self.mode >> 6 | self.mode\n",
        f"{PERMITTED}[path-read-owner]",
    ),
    Defect(
        "permissions: group bits that others have, too",
        "permissions.py",
        "            bits = self.mode >> 3\n",
        "            bits = self.mode >> 3 | self.mode\n",
        f"{PERMITTED}[path-read-group]",
    ),
    Defect(
        "permissions: a path below a directory that may not be searched, layout path",
        "namespace/access_control.py",
        "            if own is not None and not own.allows(identity, EXECUTE):\n",
        "            if False:\n",
        f"{PERMITTED}[path-stat-other]",
    ),
    Defect(
        "permissions: a path below a directory that may not be searched, layout tree",
        "namespace/access_control.py",
        "                if not own.allows(self.identity, EXECUTE):\n",
        "                if False:\n",
        f"{PERMITTED}[tree-stat-other]",
    ),
    Defect(
        "permissions: a listing of a directory that may not be read",
        "namespace/access_control.py",
        "        self.require(directory, READ | EXECUTE)\n",
        "        pass\n",
        f"{PERMITTED}[path-walk-other]",
    ),
    Defect(
        "permissions: a read of a file that may not be read",
        "files/file_ranges.py",
        "    store.access.require(entry, READ)\n",
        "",
        f"{PERMITTED}[path-read-other]",
    ),
    Defect(
        "permissions: a write of a file that may not be written",
        "namespace/access_control.py",
        "            self.require(current, WRITE)\n",
        "            pass\n",
        f"{PERMITTED}[path-touch-other]",
    ),
    Defect(
        "permissions: a removal from a directory that may not be changed",
        "namespace/access_control.py",
        '        self._require(own, _CHANGE, place, f"remove or rename {entry.path}")\n',
        "",
        f"{PERMITTED}[path-delete-other]",
    ),
    Defect(
        "permissions: a rename into a directory that may not be changed",
        "namespace/access_control.py",
        "            await self.permit_creation(target)\n",
        "            pass\n",
        f"{PERMITTED}[tree-rename-other]",
    ),
    Defect(
        "permissions: a transaction that is not evaluated",
        "namespace/commit_planning.py",
        "    await evaluation.require_permissions()\n",
        "",
        f"{PERMITTED}[path-exchange-other]",
    ),
    Defect(
        "permissions: a list of files to delete that is not evaluated",
        "namespace/bulk_changes.py",
        "                await access.permit_removal(entry)\n",
        "                pass\n",
        f"{OWNERSHIP}::test_in_a_sticky_directory_only_owners_remove_and_rename",
    ),
    Defect(
        "permissions: a list of seen files to delete that is not evaluated",
        "bulk/expected_objects.py",
        "        await volume_of(client).store.access.permit_removal(file)\n",
        "        pass\n",
        f"{OWNERSHIP}::test_what_was_seen_is_evaluated_when_it_is_changed",
    ),
    Defect(
        "permissions: a sticky directory like any other",
        "namespace/access_control.py",
        "        if not parent.is_sticky or parent.is_owner(self.identity):\n",
        "        if True:\n",
        f"{OWNERSHIP}::test_in_a_sticky_directory_only_owners_remove_and_rename",
    ),
    Defect(
        "permissions: a tree that is removed though a directory of it may not be changed",
        "namespace/access_control.py",
        "                self._permit_page(page, owns)\n",
        "                pass\n",
        f"{OWNERSHIP}::test_a_tree_is_removed_if_its_entries_may_be",
    ),
    Defect(
        "permissions: an owner who gives entries away",
        "permissions.py",
        "    if old.uid != new.uid:\n",
        "    if old.uid != new.uid and not is_owner:\n",
        f"{OWNERSHIP}::test_only_the_superuser_gives_entries_away",
    ),
    Defect(
        "permissions: a group that the owner is not in",
        "permissions.py",
        " and not (is_owner and new.gid in identity.gids):\n",
        " and not is_owner:\n",
        f"{OWNERSHIP}::test_only_the_superuser_gives_entries_away",
    ),
    Defect(
        "permissions: a mode that somebody else changes",
        "permissions.py",
        "    if old.mode != new.mode and not is_owner:\n",
        "    if False:\n",
        f"{OWNERSHIP}::test_only_the_owner_changes_mode_time_and_read_only",
    ),
    Defect(
        "permissions: a time that somebody else sets",
        "permissions.py",
        " and not is_content and not is_owner:\n",
        " and False:\n",
        f"{OWNERSHIP}::test_only_the_owner_changes_mode_time_and_read_only",
    ),
    Defect(
        "permissions: an overwritten file that changes its owner",
        "permissions.py",
        "uid=kept.uid, gid=kept.gid, mode=kept.mode)",
        "uid=kept.uid, gid=kept.gid)",
        f"{OWNERSHIP}::test_an_overwritten_file_keeps_owner_and_mode",
    ),
    Defect(
        "permissions: files without a mode that everybody can write",
        "permissions.py",
        "FILE_MODE: Final = 0o644\n",
        "FILE_MODE: Final = 0o666\n",
        f"{OWNERSHIP}::test_an_entry_without_values_is_that_of_the_superuser",
    ),
    Defect(
        "permissions: directories whose modes are kept for ever",
        "namespace/access_control.py",
        "        if own is None or until <= self._store.runtime.monotonic():\n",
        "        if own is None:\n",
        f"{OWNERSHIP}::test_directories_are_as_they_were_some_seconds_before",
    ),
    Defect(
        "permissions: a directory of somebody else that is restored from the trash",
        "layouts/tree/directory_changes.py",
        '        store.access.require_owner(trashed.entry, "restore it")\n',
        "",
        f"{OWNERSHIP}::test_the_trash_gives_directories_back_to_their_owners",
    ),
    Defect(
        "permissions: repairs by the identity of who runs them",
        "layouts/path/path_layout.py",
        "        store = self._store.unrestricted()\n",
        "        store = self._store\n",
        f"{OWNERSHIP}::test_repairs_are_not_those_of_an_identity",
    ),
    Defect(
        "tiers: the hot object is deleted although its copy has other bytes",
        "storage/tier_moves.py",
        "        if found != wanted:\n            raise CorruptDataError(",
        "        if False:\n            raise CorruptDataError(",
        f"{TIER_MOVES}::test_the_hot_object_is_kept_while_its_copy_has_other_bytes",
    ),
    Defect(
        "tiers: the hot object is deleted before it is copied",
        "storage/tier_moves.py",
        "    if copied:\n        wanted = await _copied(blobs, key, size, part_size)\n",
        "    if copied:\n        wanted = await _copied(blobs, key, size, part_size)\n"
        "        await blobs.hot.delete(key)\n",
        f"{TIER_MOVES}::test_the_hot_object_is_kept_while_its_copy_has_other_bytes",
    ),
    Defect(
        "tiers: a copy of the same size is not compared",
        "storage/tier_moves.py",
        "    return hot == await _digest(blobs.cold, key, size, part_size)",
        "    return bool(hot)",
        f"{TIER_MOVES}::test_a_wrong_copy_is_replaced",
    ),
    Defect(
        "tiers: the youngest are moved first",
        "storage/tier_moves.py",
        "key=lambda each: (each.mtime_ms, each.size, each.key)",
        "key=lambda each: (-each.mtime_ms, each.size, each.key)",
        f"{TIER_MOVES}::test_the_oldest_are_moved_and_of_one_time_the_smaller",
    ),
    Defect(
        "tiers: objects that are not the volume's are moved, too",
        "storage/tier_moves.py",
        "if object_id_of(each.key)]",
        "if object_id_of(each.key) or each]",
        f"{TIER_MOVES}::test_a_run_moves_all_and_tells_how_much",
    ),
    Defect(
        "tiers: a reader that looks in the cold store first, then in the hot one",
        "storage/tiered_blobs.py",
        "            return await read(self.hot)\n        except BlobNotFoundError:\n"
        "            return await read(self.cold)",
        "            return await read(self.cold)\n        except BlobNotFoundError:\n"
        "            return await read(self.hot)",
        f"{TIERED_BLOBS}::test_a_blob_that_is_moved_between_the_looks_of_a_reader_is_found",
    ),
    Defect(
        "tiers: a listing of the cold store first, then of the hot one",
        "storage/tiered_blobs.py",
        "        hot = await _page(self.hot, prefix, start, limit)\n"
        "        cold = await _page(self.cold, prefix, start, limit)\n",
        "        cold = await _page(self.cold, prefix, start, limit)\n"
        "        hot = await _page(self.hot, prefix, start, limit)\n",
        f"{TIERED_BLOBS}::test_a_blob_that_is_moved_after_the_listing_of_one_store_is_listed",
    ),
    Defect(
        "tiers: a page that goes beyond the end of one of its halves",
        "storage/tiered_blobs.py",
        "            end = min(ends, key=str.encode)",
        "            end = max(ends, key=str.encode)",
        f"{TIERED_BLOBS}::test_pages_of_different_lengths_skip_nothing",
    ),
    Defect(
        "tiers: a deletion in the hot store first",
        "storage/tiered_blobs.py",
        "        await self.cold.delete(key)\n        await self.hot.delete(key)",
        "        await self.hot.delete(key)\n        await self.cold.delete(key)",
        f"{TIERED_BLOBS}::test_a_deletion_that_dies_half_way_leaves_the_hot_blob",
    ),
    Defect(
        "tiers: a blob that the cold store keeps is deleted from the hot one",
        "storage/tiered_blobs.py",
        "left = [key for key in keys if key not in kept]",
        "left = [key for key in keys if key or key not in kept]",
        f"{TIERED_BLOBS}::test_a_blob_that_one_store_keeps_is_reported_and_kept_in_both",
    ),
    Defect(
        "tiers: the later of both clocks",
        "storage/tiered_blobs.py",
        "return min(await self.hot.now_ms()",
        "return max(await self.hot.now_ms()",
        f"{TIERED_BLOBS}::test_the_earlier_of_both_clocks_counts",
    ),
    Defect(
        "tiers: a volume is opened without the mark of its hot location",
        "volumes/volume.py",
        "    if await read_claim(hot) is None:",
        "    if hot is None:",
        f"{TIERED_VOLUMES}::test_a_volume_whose_hot_location_is_not_there_is_not_opened",
    ),
    Defect(
        "tiers: a destruction that forgets the hot location",
        "volumes/destruction.py",
        "((log, _LOG), (hot, _DATA), (data, _DATA))",
        "((log, _LOG), (data, _DATA))",
        f"{TIERED_VOLUMES}::test_destruction_empties_both",
    ),
    Defect(
        "rules: a file that expires a moment too late",
        "lifecycle_rules.py",
        "if each.time_ms <= now_ms]",
        "if each.time_ms < now_ms]",
        f"{RULES}::test_a_file_becomes_read_only_and_then_expires",
    ),
    Defect(
        "rules: a rule above that comes before a nearer one",
        "lifecycle_rules.py",
        "rules = list(self._above(entry.path))",
        "rules = list(self._above(entry.path))[::-1]",
        f"{RULES}::test_the_nearest_rule_applies_for_each_action",
    ),
    Defect(
        "rules: an overwritten file without an item of its own",
        "namespace/due_index.py",
        "if due is not None and due != _due_before(each, after, rules):",
        "if due is not None and each.before is None:",
        f"{RULES}::test_a_change_prolongs_and_metadata_of_a_file_comes_first",
    ),
    Defect(
        "rules: files of a moved directory that get no items",
        "namespace/due_index.py",
        "places = range(len(operations)) if rules else operations.with_metadata()",
        "places = operations.with_metadata()",
        f"{RULE_MOVES}::test_a_directory_moved_below_a_rule",
    ),
    Defect(
        "rules: a directory of layout tree that is moved without a scan",
        "namespace/due_index.py",
        "    return before.entry_key != after.entry_key\n",
        "    return False\n",
        f"{RULE_MOVES}::test_a_directory_above_the_path_of_a_rule",
    ),
    Defect(
        "rules: no second listing, for clients that did not know a rule",
        "namespace/due_items.py",
        "return not self.scanned_ms or now_ms - self.time_ms >= settle_ms",
        "return not self.scanned_ms",
        f"{RULE_MOVES}::test_a_client_that_does_not_know_a_rule_yet",
    ),
    Defect(
        "rules: an item that is removed before its change came",
        "bulk/due_entries.py",
        "if now_ms - item.time_ms >= STALE_MS:",
        "if True:",
        f"{RULE_MOVES}::test_an_item_whose_change_never_came",
    ),
    Defect(
        "rules: a past time in an hour that no run reads any more",
        "namespace/due_items.py",
        "due_partition(max(due_ms, now_ms) // HOUR_MS",
        "due_partition(due_ms // HOUR_MS",
        f"{RULES}::test_a_past_time_is_due_at_once",
    ),
    Defect(
        "rules: a run that passes over the hours of late clocks",
        "bulk/due_entries.py",
        "EARLIER_HOURS: Final = 2\n",
        "EARLIER_HOURS: Final = 0\n",
        f"{RULE_MOVES}::test_a_client_whose_clock_is_behind",
    ),
    Defect(
        "rules: retention that can be shortened",
        "namespace/attribute_changes.py",
        "    if names and after.read_only:\n",
        "    if False:\n",
        f"{RULES}::test_retention_cannot_be_shortened",
    ),
    Defect(
        "rules: items that fsck takes for foreign ones",
        "integrity/scans.py",
        "is_rule = is_rule_partition(partition) and not scope.is_legacy",
        "is_rule = False",
        f"{RULE_TOOLS}::test_fsck_and_gc_know_the_items",
    ),
    Defect(
        "rules: a restored entry without an item",
        "integrity/repair_actions.py",
        "        await self._store.indexes.add_subtree(state)\n",
        "",
        f"{RULE_TOOLS}::test_a_restored_entry_expires",
    ),
    Defect(
        "doctor: a failure ends the checks after it",
        "diagnosis/check_result.py",
        "    except S3kError as error:\n        result = failed(error, check.remedy)\n",
        "",
        f"{DIAGNOSIS}::test_a_record_and_a_tag_that_differ",
    ),
    Defect(
        "doctor: the clock without the time of the answer's date",
        "backends/aws/service_contact.py",
        "ahead_ms=None if there is None else there - sent_ms - milliseconds // 2",
        "ahead_ms=None if there is None else 0",
        f"{DIAGNOSIS}::test_a_wrong_clock",
    ),
    Defect(
        "doctor: only the configured scheme is tried",
        "backends/aws/service_contact.py",
        "                await self._ask(channel, other)\n",
        "                raise error\n",
        f"{DIAGNOSIS}::test_an_endpoint_with_the_wrong_scheme",
    ),
    Defect(
        "doctor: an object that is left behind",
        "diagnosis/permission_checks.py",
        "        await part.blobs.delete(key)\n",
        "        pass\n",
        f"{DIAGNOSIS}::test_nothing_is_left_behind_and_nothing_is_repaired",
    ),
    Defect(
        "doctor: an item that is left behind",
        "diagnosis/permission_checks.py",
        "        await items.write(Delete(key, never))\n",
        "        pass\n",
        f"{DIAGNOSIS}::test_nothing_is_left_behind_and_nothing_is_repaired",
    ),
    Defect(
        "doctor: a rule of the bucket for another prefix counts",
        "diagnosis/setting_checks.py",
        "(each.prefix.startswith(own) or own.startswith(each.prefix))",
        "True",
        f"{DIAGNOSIS}::test_a_bucket_whose_objects_expire",
    ),
    Defect(
        "doctor: a rule for all of the bucket does not count",
        "diagnosis/setting_checks.py",
        "each.prefix.startswith(own) or own.startswith(each.prefix)",
        "each.prefix.startswith(own)",
        f"{DIAGNOSIS}::test_a_bucket_whose_objects_expire",
    ),
    Defect(
        "doctor: refused credentials look like a missing permission",
        "diagnosis/service_checks.py",
        "        await part.blobs.list(limit=1)\n",
        "",
        f"{DIAGNOSIS}::test_a_wrong_secret",
    ),
    Defect(
        "doctor: the second put is not compared",
        "diagnosis/permission_checks.py",
        "            is_conditional = False\n",
        "            is_conditional = True\n",
        f"{DIAGNOSIS}::test_a_service_without_conditional_writes",
    ),
    Defect(
        "doctor: a warning is a failure",
        "cli/commands/doctor.py",
        '    failures = diagnosis.of("failure")\n',
        '    failures = [*diagnosis.of("failure"), *diagnosis.of("warning")]\n',
        f"{DOCTOR}::test_a_warning_is_no_failure",
    ),
    Defect(
        "completion: a listing without a time limit",
        "cli/word_completion.py",
        "anyio.move_on_after(SECONDS)",
        "anyio.move_on_after(None)",
        f"{COMPLETION}::test_errors_are_silent_and_listings_bounded",
    ),
    Defect(
        "completion: bash gets what stands before the colon once more",
        "cli/shell_completion.py",
        "value[at:] if",
        "value if",
        f"{COMPLETION}::test_what_bash_replaces",
    ),
    Defect(
        "plan: a read of the bucket costs as much as a write",
        "cost_model/price_table.py",
        "return self.gets if operation in _READS else self.puts",
        "return self.puts",
        f"{PLAN}::test_reads_and_deletions_have_prices_of_their_own",
    ),
    Defect(
        "plan: reclamation is free",
        "cli/commands/plan.py",
        " + prices.cost(self.reclamation)",
        "",
        f"{PLAN}::test_reads_and_deletions_have_prices_of_their_own",
    ),
    Defect(
        "progress: the rate since the start of the command",
        "cli/progress.py",
        "        self._phase_start = SYSTEM.monotonic()\n        self._parts",
        "        self._parts",
        f"{TERMINAL}::test_the_rate_is_that_of_the_phase",
    ),
    Defect(
        "ls: columns wider than the terminal",
        "cli/output.py",
        "(len(column) - 1) <= room:",
        "(len(column) - 1) <= 2 * room:",
        f"{TERMINAL}::test_columns_fit_the_terminal",
    ),
    Defect(
        "command line: a line feed at the end that starts a line",
        "cli/commands/excerpts.py",
        "body = block[:-1] if at == reader.size else block",
        "body = block",
        f"{EXCERPTS}::test_lines_at_both_ends",
    ),
    Defect(
        "command line: a tail that reads the whole file",
        "cli/commands/excerpts.py",
        "        begin = max(0, at - length)\n",
        "        begin = 0\n",
        f"{EXCERPTS}::test_only_the_end_that_is_shown_is_read",
    ),
    Defect(
        "command line: a head that counts the lines of each block alone",
        "cli/commands/excerpts.py",
        "        count -= found\n        at += len(block)\n",
        "        at += len(block)\n",
        f"{EXCERPTS}::test_lines_at_both_ends",
    ),
    Defect(
        "command line: a verification that reads nothing",
        "cli/commands/inspection.py",
        "            if verify:\n",
        "            if False:\n",
        f"{INSPECTION}::test_verification_reads_the_file",
    ),
    Defect(
        "command line: a test that one of several conditions passes",
        "cli/commands/inspection.py",
        "        return all(_CON",
        "        return any(_CON",
        f"{INSPECTION}::test_all_conditions_must_be_fulfilled",
    ),
)
