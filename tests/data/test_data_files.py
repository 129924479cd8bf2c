"""Where data sets are looked for, what is fetched, and that nothing is used whose sha256 differs."""

from __future__ import annotations

import hashlib
import io
import lzma
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from hush.data import files
from hush.data.registry import CIFAR10_SHEETS, FASHION_MNIST, MNIST, File, Source
from hush.data.tables import TABLES
from hush.errors import DataMissing, UnreadableFile

CONTENT = b"a,b\n1,2\n"
FILE = File("small.csv.xz", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
HOMED = File("small.csv.xz", FILE.sha256, FILE.size, "https://example.org/small.csv")
SOURCE = Source("small", (FILE,), "nowhere", "none", "it is in the drawer")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HUSH_DATA", raising=False)
    return tmp_path / "cache" / "hush" / "small"


def answer(monkeypatch: pytest.MonkeyPatch, content: bytes | Exception) -> list[str]:
    """Stands for the network; gives the list of the addresses that were asked for."""
    asked: list[str] = []

    def opened(address: str, timeout: float) -> Any:
        asked.append(address)
        if isinstance(content, Exception):
            raise content
        return io.BytesIO(content)

    monkeypatch.setattr(urllib.request, "urlopen", opened)
    return asked


def test_shared_folder_comes_before_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSH_DATA", str(tmp_path / "shared"))
    assert files.folders_of("small", None) == [tmp_path / "shared" / "small", tmp_path / "cache" / "hush" / "small"]
    assert files.folders_of("small", tmp_path / "own") == [tmp_path / "own"]


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_is_read_packed_or_not(tmp_path: Path, packed: bool) -> None:
    name = "small.csv.xz" if packed else "small.csv"
    (tmp_path / name).write_bytes(lzma.compress(CONTENT) if packed else CONTENT)
    assert files.read(FILE, SOURCE, [tmp_path]) == CONTENT


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT + b"3,4\n", CONTENT.replace(b"1", b"7")])
def test_other_bytes_are_refused_by_name_and_sha256(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "small.csv").write_bytes(content)
    with pytest.raises(UnreadableFile) as refusal:
        files.read(FILE, SOURCE, [tmp_path])
    message = str(refusal.value)
    assert str(tmp_path / "small.csv") in message
    assert FILE.sha256 in message
    assert hashlib.sha256(content).hexdigest() in message


def test_a_packed_file_that_would_grow_is_not_unpacked_whole(tmp_path: Path) -> None:
    (tmp_path / "small.csv.xz").write_bytes(lzma.compress(bytes(50_000_000)))
    with pytest.raises(UnreadableFile, match=rf"\({len(CONTENT) + 1} bytes\)"):
        files.read(FILE, SOURCE, [tmp_path])


def test_a_broken_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "small.csv.xz").write_bytes(lzma.compress(CONTENT)[:-9])
    with pytest.raises(UnreadableFile, match="xz"):
        files.read(FILE, SOURCE, [tmp_path])


def test_what_has_no_home_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer(monkeypatch, CONTENT)
    with pytest.raises(DataMissing, match=r"small\.csv.*it is in the drawer.*HUSH_DATA"):
        files.read(FILE, SOURCE, [tmp_path])
    assert asked == []


def test_a_download_is_checked_kept_and_not_repeated(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer(monkeypatch, CONTENT)
    folders = files.folders_of("small", None)
    assert files.read(HOMED, SOURCE, folders) == CONTENT
    assert files.read(HOMED, SOURCE, folders) == CONTENT
    assert asked == [HOMED.address]
    assert [path.name for path in cache.iterdir()] == ["small.csv"]


def test_a_wrong_download_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, CONTENT + b"5,6\n")
    with pytest.raises(UnreadableFile, match=r"https://example\.org/small\.csv"):
        files.read(HOMED, SOURCE, files.folders_of("small", None))
    assert not cache.exists()


def test_no_network_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, urllib.error.URLError("no route"))
    with pytest.raises(DataMissing, match=r"no route.*drawer"):
        files.read(HOMED, SOURCE, files.folders_of("small", None))


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    answer(monkeypatch, CONTENT)
    assert files.read(HOMED, SOURCE, files.folders_of("small", None)) == CONTENT


def test_every_file_is_pinned() -> None:
    from hush.data import registry

    sources = [value for value in vars(registry).values() if isinstance(value, Source)]
    pinned = [file for source in sources for file in source.files] + list(CIFAR10_SHEETS)
    assert len(sources) >= len(TABLES) + 4
    assert len(pinned) >= 4 + 4 + 6 + 8
    assert all(len(file.sha256) == 64 and file.size > 0 for file in pinned)
    assert len({file.sha256 for file in (*MNIST.files, *FASHION_MNIST.files)}) == 8  # same names, other bytes
    assert all(file.address.startswith("https://") for file in pinned if file.address)
