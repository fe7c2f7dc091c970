"""Examples of the commands, shown at the end of their help. Tests run each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["EXAMPLES", "examples_of"]

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    # Lookup commands
    "ls": ("s3k ls -lh ./vol:/raw", "s3k ls -R -o all.parquet ./vol"),
    "tree": ("s3k tree -L 2 ./vol",),
    "stat": ("s3k stat /raw/a.csv /raw/day=1",),
    "find": ("s3k find /raw --name '*.csv' --newer 2d", "s3k find / --type f --size +1MiB"),
    "du": ("s3k du -sh /raw /logs",),
    "count": ("s3k count -h /raw",),
    "checksum": ("s3k checksum --verify /raw/a.csv",),
    "test": ("s3k test -d /raw",),
    "df": ("s3k df -h ./vol",),
    "diff": ("s3k diff --checksum ./local ./vol:/published",),
    "versions": ("s3k versions /gone.csv",),
    "whois": ('s3k whois "$KEY"',),
    # Content commands
    "cat": ("s3k cat --range 0-99 /raw/a.csv",),
    "head": ("s3k head -n 2 /raw/a.csv",),
    "tail": ("s3k tail -c 1KiB /raw/a.csv",),
    "presign": ("s3k presign /raw/a.csv --expires 1h", "s3k presign '/raw/a.*' --expires 7d"),
    "put": ("s3k put -r local ./vol:/in", "s3k put report.csv /raw/"),
    "get": ("s3k get -r /raw copy", "s3k get /raw/a.csv -"),
    "append": ("s3k append report.csv /logs/app.log",),
    "truncate": ("s3k truncate --size 1k /raw/a.csv",),
    "concat": ("s3k concat /raw/a.csv /raw/day=1/part-0 /raw/day=2/part-0",),
    "compact": ("s3k compact /raw/a.csv",),
    # Change commands
    "cp": ("s3k cp -r /raw /backup", "s3k cp ./vol:/raw/a.csv ./other:/a.csv"),
    "mv": ("s3k mv /raw /clean", "s3k mv --pairs pairs.txt"),
    "rm": ("s3k rm -r /raw", "s3k rm --from paths.txt"),
    "sync": ("s3k sync ./local ./vol:/raw", "s3k sync --delete --dry-run ./vol:/raw ./copy"),
    "import": ("s3k import ./local ./vol:/in",),
    "undelete": ("s3k undelete /gone.csv", "s3k undelete /gone.csv --to /back.csv"),
    "restore": ("s3k restore /raw --at 2h",),
    "mkdir": ("s3k mkdir -p /in/2026/11",),
    "touch": ("s3k touch /raw/_SUCCESS",),
    "attr": ("s3k attr --set source=sensor-7 /raw/a.csv",),
    "rules list": ("s3k rules list",),
    "rules remove": ("s3k rules remove /logs",),
    "rules run": ("s3k rules run ./vol",),
    "rules set": ("s3k rules set --expire-after 30d /logs",),
    "trash empty": ("s3k trash empty --older-than 1h --yes",),
    "trash ls": ("s3k trash ls /old",),
    "trash restore": ("s3k trash restore /old", "s3k trash restore --to /found /old"),
    "trash retention": ("s3k trash retention ./vol --set 3d",),
    "object cp": ("s3k object cp -r /photos/2026 /photos/copies",),
    "object info": ("s3k object info /photos /photos/2026/a.jpg",),
    "object ls": ("s3k object ls /photos/2026",),
    "object mb": ("s3k object mb /videos",),
    "object mv": ("s3k object mv /photos/2026/a.jpg /photos/first.jpg",),
    "object rb": ("s3k object rb /empty",),
    "object rm": ("s3k object rm -r /photos/2026 --include '*.jpg'",),
    "object upload abort": ('s3k object upload abort ./vol "$ID"',),
    "object upload complete": ('s3k object upload complete ./vol "$ID"',),
    "object upload copy": ('s3k object upload copy ./vol "$ID" 2 /photos/2026/a.jpg',),
    "object upload create": ("s3k object upload create /photos/2026/large.jpg",),
    "object upload ls": ("s3k object upload ls /photos",),
    "object upload parts": ('s3k object upload parts ./vol "$ID"',),
    "object upload put": ('s3k object upload put ./vol "$ID" 2 report.csv',),
    # Volume commands
    "init": ("s3k init ./new", "s3k init s3k://lab --table sqlite:lab.db --data-location ./lab"),
    "volumes": ("s3k volumes sqlite:vol/metadata.sqlite",),
    "info": ("s3k info ./vol --sizes",),
    "set-capacity": ("s3k set-capacity --read-units 100 --write-units 50 s3k://lab",),
    "destroy": ("s3k destroy ./other --yes --force",),
    "dump": ("s3k dump ./vol -o tree.jsonl",),
    "load": ("s3k load dump.jsonl ./new --copy-bytes-from ./vol",),
    "reshard": ("s3k reshard ./vol --suffix-count 8",),
    "migrate": ("s3k migrate ./other --layout path", "s3k migrate ./vol --enable permissions"),
    "cache clear": ("s3k cache clear --cache /tmp/s3k-cache",),
    "cache evict": ("s3k cache evict --cache /tmp/s3k-cache --to 1GiB",),
    "cache info": ("s3k cache info --cache /tmp/s3k-cache",),
    "policy": ("s3k policy writer --table meta --bucket data --account 123456789012 s3k://lab",),
    "plan": ("s3k plan rename --files 10k", "s3k plan mix stat=60 read=20 write=15 rename=1"),
    # Maintenance commands
    "doctor": ("s3k doctor ./vol --role writer",),
    "fsck verify": ("s3k fsck ./vol", "s3k fsck verify --deep ./vol:/raw"),
    "fsck repair": ("s3k fsck repair ./vol --yes",),
    "fsck restore": ("s3k fsck restore ./lost",),
    "verify": ("s3k verify /raw /logs", "s3k verify -f paths.txt --threads 32"),
    "gc": ("s3k gc ./vol", "s3k gc ./vol --yes"),
    "alerts drain": ('s3k alerts drain "sqs:$QUEUE"',),
    "alerts purge": ('s3k alerts purge "sqs:$QUEUE" --yes',),
    "oplog compact": ("s3k oplog compact ./vol --yes",),
    "oplog retire": ("s3k oplog retire s3k://old --successor s3k://new",),
    "oplog show": ("s3k oplog show /raw/a.csv",),
    "oplog size": ("s3k oplog size ./vol",),
    "oplog tail": ("s3k oplog tail -n 5 ./vol",),
    "transactions list": ("s3k transactions ./vol",),
    "transactions resolve": ("s3k transactions resolve ./vol",),
    "tier run": ("s3k tier run ./tiered --older-than 7d",),
    "tier warm": ("s3k tier warm -r ./tiered:/",),
    "tier status": ("s3k tier status ./tiered",),
    # Development commands
    "dev down": ("s3k dev down",),
    "dev status": ("s3k dev status",),
    "dev up": ("s3k dev up", "s3k dev up --directory /tmp/s3k-dev"),
    "completion": ("s3k completion bash",),
}
"""By the names of a command. `./vol` is the default volume in them."""


def examples_of(command_path: str) -> tuple[str, ...]:
    """The examples of a command, by its path with the program's name."""
    return EXAMPLES.get(" ".join(command_path.split()[1:]), ())
