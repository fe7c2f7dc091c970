"""What a newcomer is told to do about an error of the first hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def vol(cli: Cli) -> None:
    """An embedded volume `./vol` with the directory `/in`, and a local file."""
    cli.ok("init", "./vol", "-q")
    cli.ok("put", "-", "./vol:/in/a.txt", stdin=b"1")
    Path("local").mkdir()
    Path("local/file").write_text("1")
    Path("loc/sub").mkdir(parents=True)


@pytest.mark.parametrize(
    ("code", "command", "remedy"),
    [
        (3, "ls ./vol/in", "for a path in the volume ./vol, write ./vol:/in"),
        (3, "get ./vol/in/a.txt .", "write ./vol:/in/a.txt"),
        (3, "put local/file ./vol/x", "write ./vol:/x"),
        (3, "rm -r ./vol/in", "write ./vol:/in"),
        (3, "ls ./vol:in", "write ./vol:/in"),
        (3, "fsck ./vol/in", "write ./vol:/in"),
        (3, "gc ./vol/in", "write ./vol:/in"),
        (3, "ls ./nope", "s3k init ./nope creates one"),
        (3, "ls ./local", "s3k fsck restore rebuilds a lost table"),
        (3, "ls memory://nope", "s3k init creates one"),
        (3, "ls ./vol:/in/*.csv", "nothing matches the pattern: s3k find PATH --name '*.csv'"),
        (
            3,
            "concat ./vol:/in/a.txt ./vol:/in/*.t",
            "patterns are not expanded: s3k find PATH --name '*.t'",
        ),
        (3, "tree ./vol:/in/*.csv", "nothing matches the pattern: s3k find PATH --name '*.csv'"),
        (3, "undelete ./vol:/in/*.txt", "no deleted file matches the pattern"),
        (3, "rm ./vol:/in/[xy].txt", "nothing matches the pattern: s3k find"),
        (1, "cp ./vol:/in ./vol:/copy", "-r copies it and everything below it"),
        (1, "get ./vol:/in local", "-r"),
        (1, "put local ./vol:/in", "-r"),
        (1, "put loc ./vol:/in", "needs -r: loc"),
        (1, "put loc/sub ./vol:/in", "needs -r: loc/sub"),
        (3, "put loc/*.txt ./vol:/x", "the shell expands patterns of local files, unless they"),
        (1, "cat ./vol:/in", "s3k get -r copies one"),
        (1, "touch ./vol:/in", "touch is for files"),
        (2, "cp local/file ./vol:/x", "s3k put copies local files"),
        (2, "cp ./vol:/in/a.txt local/", "s3k get copies to local files"),
        (2, "mv ./vol:/in/a.txt local/file", "s3k get copies to local files"),
        (1, "compact ./vol:/in", "-r compacts the files below it"),
        (2, "whois nonsense --volume ./vol", "give it as s3k stat shows it"),
        (5, "volumes table --region r", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a"),
        (11, "volumes table", "--region or AWS_REGION sets it"),
        (3, "object cp in/a.txt ./vol:/in/f", "an object of the default volume is written /in/a"),
        (1, "object mv ./local ./vol:/in/x", "a local directory needs -r"),
        (3, "mv ./vol:/in ./vol:/no/where", "s3k mkdir -p creates it: /no"),
        (3, "mkdir ./vol:/a/b", "-p creates it"),
        (4, "mkdir ./vol:/in", "-p accepts an existing directory"),
        (4, "rm ./vol:/in", "-r removes it and everything below it"),
        (4, "init ./vol", "--exist-ok"),
        (
            11,
            "init s3k://lab --table ab --bucket lab",
            "has 3 to 255 letters, digits, '.', '_' and '-'",
        ),
        (11, "ls", "set S3K_VOLUME"),
        (2, "ls vol", "./vol for an embedded volume"),
    ],
)
def test_an_error_names_its_remedy(
    cli: Cli, vol: None, code: int, command: str, remedy: str
) -> None:
    assert remedy in cli.fails(code, *command.split()).errors
    assert remedy in cli(*command.split(), "--json").error()["message"]


def test_each_of_several_failures_names_its_remedy(cli: Cli, vol: None) -> None:
    done = cli("cp", "./vol:/in", "./vol:/in/a.txt", "./vol:/copy/")
    assert done.code == 10
    assert "-r copies it and everything below it" in done.errors


def test_a_directory_at_the_target_of_an_object_is_not_copied(cli: Cli, vol: None) -> None:
    cli.ok("put", "-", "./vol:/in/d/e", stdin=b"1")
    for verb in ("cp", "mv"):
        failed = cli.fails(1, "object", verb, "./vol:/in/a.txt", "./vol:/in/d")
        assert "a directory is at the path: /in/d" in failed.errors
        assert "-r" not in failed.errors
    failed = cli.fails(2, "object", "cp", "./vol:/in", "./vol:/in/x")
    assert "s3k put" not in failed.errors
