"""One word for one thing: names of classes and files, sizes of folders and classes, and the glossary."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts import vocabulary

GLOSSARY = "docs/internals/glossary.md"


@pytest.fixture
def package(repository: Path) -> Path:
    return repository / "backend" / "walkgraph"


def test_no_class_name_means_two_things(package: Path) -> None:
    assert vocabulary.shared_class_names(package) == {}


def test_no_file_name_stands_twice(package: Path) -> None:
    assert vocabulary.shared_stems(package) == {}


def test_no_retired_word_is_back(package: Path) -> None:
    assert vocabulary.retired_words(package) == []


def test_no_folder_is_wider_than_its_budget(package: Path) -> None:
    assert vocabulary.wide_folders(package) == {}


def test_no_class_has_more_methods_than_its_budget(package: Path) -> None:
    assert vocabulary.wide_classes(package) == {}


def test_every_registry_is_a_folder(package: Path) -> None:
    assert [name for name in vocabulary.REGISTRIES if not (package / name).is_dir()] == []


def test_the_glossary_has_every_word_once_with_a_file_that_has_it(package: Path, repository: Path) -> None:
    rows = vocabulary.glossary((repository / GLOSSARY).read_text())
    assert len(rows) > 100
    names = [word.casefold() for word, _ in rows]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
    assert [file for _, file in rows if not (package / file).is_file()] == []
    assert [(word, file) for word, file in rows if not says(package / file, word)] == []


def test_the_glossary_names_every_folder_of_the_runtime(package: Path, repository: Path) -> None:
    owned = {Path(file).parent.as_posix() for _, file in vocabulary.glossary((repository / GLOSSARY).read_text())}
    folders = {path.parent.relative_to(package).as_posix() for path in vocabulary.modules(package)}
    assert sorted(folders - owned) == []


def says(path: Path, word: str) -> bool:
    """Returns True if a file contains a word in its name, in its text or in an identifier."""
    text = f"{path.stem}\n{path.read_text()}".casefold()
    plain = word.casefold().replace("-", " ")
    return any(form in text for form in (plain, plain.replace(" ", "_"), plain.replace(" ", "")))


# ── planted ─────────────────────────────────────────────────────────────────────────────────────────


def plant(package: Path, name: str, text: str = "") -> None:
    path = package / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_planted_class_names_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "engine/a.py", "class _PageTable:\n    pass\n")
    plant(tmp_path, "worker/b.py", "class Pagetable:\n    pass\n")
    plant(tmp_path, "service/c.py", "class PageTable:\n    pass\n")
    assert vocabulary.shared_class_names(tmp_path) == {"pagetable": ["engine/a.py", "worker/b.py"]}


def test_planted_file_names_are_found(tmp_path: Path) -> None:
    for name in ("engine/kv/pages.py", "conductor/pages.py", "worker/core.py", "conductor/core.py"):
        plant(tmp_path, name)
    assert vocabulary.shared_stems(tmp_path) == {"pages": ["engine/kv/pages.py", "conductor/pages.py"]}


def test_planted_retired_words_are_found(tmp_path: Path) -> None:
    plant(
        tmp_path, "engine/crossing.py", "class DenseRooms:\n    def rows_of_lane(self): ...\n    def wayside(self): ..."
    )
    found = [line.partition(": ")[2] for line in vocabulary.retired_words(tmp_path)]
    assert found == ["crossing", "DenseRooms", "rows_of_lane"]


def test_a_planted_wide_folder_is_found(tmp_path: Path) -> None:
    for folder, count in (("engine/kv", vocabulary.FOLDER_FILES + 1), ("worker", vocabulary.FOLDER_FILES)):
        for number in range(count):
            plant(tmp_path, f"{folder}/f{number}.py")
        plant(tmp_path, f"{folder}/__init__.py")
    for number in range(vocabulary.FOLDER_FILES + 1):
        plant(tmp_path, f"service/routes/f{number}.py")
    assert vocabulary.wide_folders(tmp_path) == {"engine/kv": vocabulary.FOLDER_FILES + 1}


def test_a_planted_wide_class_is_found(tmp_path: Path) -> None:
    methods = "".join(f"    async def m{n}(self): ...\n" for n in range(vocabulary.METHODS))
    plant(tmp_path, "store/a.py", f"class A:\n{methods}    def more(self): ...\nclass B:\n{methods}")
    assert vocabulary.wide_classes(tmp_path) == {"store/a.py::A": vocabulary.METHODS + 1}


def test_planted_glossary_words_without_a_file_that_has_them_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "engine/a.py", "class PageTable:\n    pass\n")
    head = "| word | meaning | file |\n|---|---|---|\n"
    text = head + "| page table | where it is | `engine/a.py` |\n| slot | a place | `engine/a.py` |"
    assert vocabulary.glossary(text) == [("page table", "engine/a.py"), ("slot", "engine/a.py")]
    assert says(tmp_path / "engine/a.py", "page table")
    assert not says(tmp_path / "engine/a.py", "slot")
