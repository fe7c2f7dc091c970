"""The volume does what the dictionary does, whatever is called, and whoever dies."""

from __future__ import annotations

import inspect
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.model import Feature
from tests.torture import (
    model,
    model_lists,
    model_machine,
    model_transactions,
    model_uploads,
)
from tests.torture.crash_objects import OBJECT_UPLOADS
from tests.torture.crash_scenarios import verb_of
from tests.torture.model_machine import RepairedMachine, TreeMachine, VolumeMachine
from tests.torture.model_volume import embedded_config, memory_config

STEPS = 40


class InMemory(RepairedMachine):
    features: Sequence[Feature] = ("counters",)

    def new_config(self) -> VolumeConfig:
        return memory_config()


class Embedded(RepairedMachine):
    def new_config(self) -> VolumeConfig:
        self.directory = tempfile.mkdtemp(prefix="s3k-model-")
        return embedded_config(self.directory)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.directory)


class InTree(TreeMachine):
    def new_config(self) -> VolumeConfig:
        return memory_config("tree")


def explore(machine: type[VolumeMachine], examples: int) -> None:
    """Run random calls against both, from a seed that is printed."""
    number = int(os.environ.get("S3K_TEST_SEED") or random.SystemRandom().randrange(2**32))
    sys.stdout.write(
        f"S3K_TEST_SEED={number} {machine.__name__}: {examples} examples of up to {STEPS} steps\n"
    )
    profile = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(
        seed(number)(type(machine.__name__, (machine,), {})), settings=profile
    )


@pytest.mark.parametrize(("machine", "examples"), [(InMemory, 14), (Embedded, 3), (InTree, 14)])
def test_a_volume_does_what_a_dictionary_does(machine: type[VolumeMachine], examples: int) -> None:
    explore(machine, examples)


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "share"), [(InMemory, 2), (Embedded, 0.2), (InTree, 2)])
def test_a_volume_does_what_a_dictionary_does_for_long(
    machine: type[VolumeMachine], share: float
) -> None:
    explore(machine, int(share * 200))


def test_every_verb_is_in_the_model() -> None:
    """A new one has to be added to it, or here with those that are tested elsewhere."""
    elsewhere = {
        "adopt_many",
        "close",
        "copy_to",
        "count",
        "discard_staged",
        # tests/client/test_transfer.py
        "download",
        "upload",
        # tests/observation/test_volume_health.py
        "health",
        # tests/lifecycle/test_random_histories.py
        "due_actions",
        "remove_rule",
        "rules",
        "run_rules",
        "set_rule",
        "transactions",
        # tests/client/test_versions.py
        "restore",
        "undelete",
        "versions",
        "open_volume",
        # tests/client/test_storage_info.py
        "storage_info",
        "physical_path",
        "physical_paths",
        # tests/client/test_presign.py
        "presign",
        "trash",
    }
    verbs = {
        name for name, _ in inspect.getmembers(S3kClient, callable) if not name.startswith("_")
    }
    source = "".join(
        inspect.getsource(module) for module in (model, model_lists, model_transactions)
    )
    called = {verb for verb in verbs if f"fs.{verb}(" in source}
    assert verbs - called == elsewhere


def test_every_verb_of_uploads_is_in_the_model() -> None:
    """But for the one that garbage collection carries out, too: tests/objects/test_uploads.py."""
    source = inspect.getsource(model_uploads) + inspect.getsource(model_machine)
    verbs = {verb_of(name) for name in OBJECT_UPLOADS}
    assert {verb for verb in verbs if f"await {verb}(" in source or f"do({verb}(" in source} == (
        verbs - {"expire_uploads"}
    )
