"""Fuzzing of everything that reads what others wrote: `python -m tests.torture.fuzz --seconds 600`.

Inputs are valid ones with a few changes; each is read to the end or refused with a named error. A
crash ends the run with the input in hexadecimal and the seed that repeats it; one that does not end
is shown after `PATIENCE` seconds.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.torture.fuzz_mutations import mutate
from tests.torture.fuzz_targets import TARGETS

__all__ = ["Tally", "fuzz", "main"]

PATIENCE = 60.0
BATCH = 200


@dataclass
class Tally:
    """How many inputs were read and refused, by target."""

    read: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def executions(self) -> int:
        """All inputs."""
        return self.read.total() + self.refused.total()


def fuzz(name: str, seed: str, executions: int, tally: Tally) -> None:
    """Give so many inputs to one target. Raises AssertionError with the input for anything that is
    no named error."""
    target, choice = TARGETS[name], random.Random(f"{seed}-{name}")
    for number in range(executions):
        data = target.prepared(choice, mutate(choice, choice.choice(target.corpus), target.corpus))
        try:
            target.read(data)
        except target.errors:
            tally.refused[name] += 1
        except Exception as error:
            message = (
                f"{name}: input {number} of seed {seed!r}: {type(error).__name__}: "
                f"{error}\n{data[:4000].hex()}"
            )
            raise AssertionError(message) from error
        else:
            tally.read[name] += 1


def main(arguments: list[str] | None = None) -> int:
    """Fuzz for so long, the targets in turn."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(2**32)))
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    chosen = parser.parse_args(arguments)
    sys.stdout.write(f"seed {chosen.seed}\n")
    tally, end, turn = Tally(), time.monotonic() + chosen.seconds, 0
    while time.monotonic() < end:
        for name in chosen.target or TARGETS:
            faulthandler.dump_traceback_later(
                PATIENCE, exit=True, file=sys.__stderr__ or sys.stderr
            )
            fuzz(name, f"{chosen.seed}-{turn}", BATCH, tally)
            faulthandler.cancel_dump_traceback_later()
        turn += 1
    for name in chosen.target or TARGETS:
        sys.stdout.write(f"{name:16}{tally.read[name]:>12} read{tally.refused[name]:>12} refused\n")
    sys.stdout.write(f"{tally.executions} executions, no crash, no hang\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
