"""`UPath("s3k://lake/x")`: a path of universal-pathlib in a volume."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from upath import UPath
from upath.registry import get_upath_class

from s3k_async.adapters.universal_pathlib import S3kPath
from s3k_async.errors import CrossVolumeError, DirectoryNotEmptyError
from tests.adapters.lake import embedded_volume


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_volume(tmp_path_factory.mktemp("lake")) as url:
        yield url


@pytest.fixture(scope="module")
def other(lake: str, tmp_path_factory: pytest.TempPathFactory) -> UPath:
    """A path in another volume, found by its storage option."""
    directory = tmp_path_factory.mktemp("other")
    with embedded_volume(directory) as url:
        return UPath(f"{url}/other", directory=str(directory / "volume"))


@pytest.fixture
def root(lake: str, request: pytest.FixtureRequest) -> UPath:
    """A directory for one test."""
    name: str = request.node.name
    path = UPath(lake) / name
    path.mkdir()
    return path


def test_urls_become_paths_of_our_class_without_a_warning(lake: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = UPath(f"{lake}/raw/day=1/part-0.csv")
    assert type(path) is S3kPath is get_upath_class("s3k")
    assert (path.protocol, path.path) == ("s3k", "/raw/day=1/part-0.csv")
    assert (path.name, path.stem, path.suffix) == ("part-0.csv", "part-0", ".csv")
    assert path.parts == ("/", "raw", "day=1", "part-0.csv")


def test_a_path_keeps_its_volume(lake: str) -> None:
    path = UPath(f"{lake}/raw/x")
    for same in (
        UPath(str(path)),
        UPath(path.as_uri()),
        pickle.loads(pickle.dumps(path)),
        path.parent / "x",
    ):
        assert same == path
        assert hash(same) == hash(path)
        assert str(same) == f"{lake}/raw/x"
    assert str(path.parent.parent) == f"{lake}/"
    assert str(path.with_name("y").with_suffix(".gz")) == f"{lake}/raw/y.gz"
    assert str(path.relative_to(path.parent)) == "x"


def test_files_are_written_read_and_removed(root: UPath) -> None:
    path = root / "a" / "b.txt"
    path.parent.mkdir()
    path.write_text("ä\n", encoding="utf-8")
    assert path.read_bytes() == "ä\n".encode()
    with path.open("a", encoding="utf-8") as file:
        file.write("more")
    assert path.read_text(encoding="utf-8") == "ä\nmore"
    assert path.stat().st_size == len("ä\nmore".encode())
    assert path.exists()
    assert path.is_file()
    assert not path.is_dir()
    assert path.parent.is_dir()
    with pytest.raises(FileExistsError):
        path.open("xb")
    path.unlink()
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        path.unlink()
    with pytest.raises(FileNotFoundError):
        path.read_bytes()


def test_directories_are_made_listed_and_removed(root: UPath) -> None:
    with pytest.raises(FileExistsError):
        root.mkdir()
    root.mkdir(exist_ok=True)
    (root / "d" / "e").mkdir(parents=True)
    for name in ("a.csv", "b.csv", "d/c.csv", "d/e/f.txt"):
        (root / name).write_bytes(b"x")
    assert sorted(each.name for each in root.iterdir()) == ["a.csv", "b.csv", "d"]
    assert sorted(str(each.relative_to(root)) for each in root.glob("*.csv")) == ["a.csv", "b.csv"]
    assert sorted(str(each.relative_to(root)) for each in root.rglob("*.csv")) == [
        "a.csv",
        "b.csv",
        "d/c.csv",
    ]
    walked = {
        str(path.relative_to(root)): (sorted(dirs), sorted(files))
        for path, dirs, files in root.walk()
    }
    assert walked == {
        ".": (["d"], ["a.csv", "b.csv"]),
        "d": (["e"], ["c.csv"]),
        "d/e": ([], ["f.txt"]),
    }
    (root / "d").rmdir()
    assert not (root / "d" / "e" / "f.txt").exists()


def test_a_rename_keeps_the_object(root: UPath) -> None:
    (root / "old").mkdir()
    (root / "old" / "x").write_bytes(b"x")
    before = root.fs.info((root / "old" / "x").path)
    assert (root / "old").rename(root / "new") == root / "new"
    assert (root / "new").rename(str(root / "newest")) == root / "newest"
    assert (root / "newest").move(root / "last") == root / "last"
    after = root.fs.info((root / "last" / "x").path)
    assert (after["id"], after["size"]) == (before["id"], before["size"])
    assert not (root / "old").exists()


@pytest.mark.parametrize("name", ["x*", "x?", "x[1]"])
def test_wildcards_in_a_path_are_text(root: UPath, name: str) -> None:
    """Nothing happens to the others that they would match as a pattern."""
    here, others = root / "here", {"x1", "x2", "x1/f"}
    (here / "x1").mkdir(parents=True)
    (here / "x1" / "f").touch()
    (here / "x2").touch()

    def left() -> set[str]:
        return {path.path.removeprefix(here.path + "/") for path in here.rglob("*")} - {here.path}

    file, directory = here / name, here / (name + "d")
    file.write_bytes(b"1")
    moved = file.rename(here / ("new" + name))
    assert (moved.name, moved.read_bytes()) == ("new" + name, b"1")
    assert left() == {*others, "new" + name}
    assert moved.rename(file.path) == file
    file.unlink()
    with pytest.raises(FileNotFoundError):
        file.unlink()
    file.unlink(missing_ok=True)
    assert left() == others
    directory.mkdir()
    directory.rmdir(recursive=False)
    (directory / "below").mkdir(parents=True)
    (directory / "below" / "g").touch()
    assert [path.path for path in directory.glob("*")] == [(directory / "below").path]
    assert (directory / "below" / "g").path in {path.path for path in directory.rglob("*")}
    with pytest.raises(DirectoryNotEmptyError):
        directory.rmdir(recursive=False)
    directory.rmdir()
    assert left() == others
    with pytest.raises(NotADirectoryError):
        directory.rmdir()


def test_copies_go_to_the_local_disk_and_back(root: UPath, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "x").write_bytes(b"x" * 100_000)
    UPath(tmp_path / "local").copy(root / "there")
    assert (root / "there" / "x").read_bytes() == b"x" * 100_000
    (root / "there").copy(UPath(tmp_path / "back"))
    assert (tmp_path / "back" / "x").read_bytes() == b"x" * 100_000


def test_a_path_of_another_volume_is_never_taken_for_one_of_this(root: UPath, other: UPath) -> None:
    path = root / "x"
    path.write_bytes(b"here")
    refused: list[Callable[[], object]] = [
        lambda: path.rename(other),
        lambda: path.rename(str(other)),
        lambda: path / other,
        lambda: path.joinpath(other),
        lambda: path.joinpath(str(other)),
        lambda: UPath(str(other), volume=str(root).rpartition("/")[0]),
    ]
    for wrong in refused:
        with pytest.raises(CrossVolumeError):
            wrong()
    assert path.read_bytes() == b"here"
    assert not (root.parent / "other").exists()
    assert not path.is_relative_to(other.parent)
    with pytest.raises(ValueError, match="incompatible"):
        path.relative_to(other.parent)


def test_moving_to_another_volume_copies_and_then_removes(root: UPath, other: UPath) -> None:
    path = root / "x"
    path.write_bytes(b"wanders")
    assert path.move(other) == other
    assert other.read_bytes() == b"wanders"
    assert not path.exists()
