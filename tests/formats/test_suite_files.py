"""Configurations of promptfoo and AgentV whose tests stand in other files, in scenarios and in templates."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import EvalCase, load_eval_cases, suite_files
from rubric_integrations.formats.suite_files import assertion_of_cell

CSV = (
    "\ufeffquestion,__expected1,__expected2,__description,__metric,__threshold,__metadata:kind,vars.unit\n"
    '"Where, then?",contains: Paris,"grade: Names {{unit}}, too",first,place,0.5,x,km\n\n'
    "How far?,not-icontains-any(0.5): mile,,,,,,mi\n"
)
YAML_TESTS = "- {description: one, vars: {q: a}, assert: [{type: contains, value: '{{q}}'}]}\n- {vars: {q: b}}\n"


def write(folder: Path, config: Any, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    path = folder / "promptfooconfig.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def read(path: Path, *, strict: bool = False) -> list[EvalCase]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(load_eval_cases(path, strict=strict))


def test_rows_of_a_csv_file_are_cases_with_their_assertions_and_variables(tmp_path: Path) -> None:
    first, second = read(write(tmp_path, {"tests": "file://rows.csv"}, rows_csv=CSV))
    assert (first.id, first.input, second.id, second.input) == ("first", "Where, then?", "Row #2", "How far?")
    contains, judged = first.rubric.criteria
    assert contains.check is not None
    assert (contains.check.contains, contains.tags, first.rubric.pass_mark) == ("Paris", ("place",), 0.5)
    assert (judged.requirement, judged.check) == ("Names km, too", None)
    assert not second.rubric.left_out
    assert second.rubric.criteria[0].required
    assert second.rubric.criteria[0].requirement.startswith("not-icontains-any")


@pytest.mark.parametrize(
    ("cell", "kind", "value"),
    [
        ("Paris", "equals", "Paris"), ("contain: Paris", "equals", "contain: Paris"), ("note: x", "equals", "note: x"),
        ("fn:output > 1", "javascript", "output > 1"), ("file://check.py:f", "python", "file://check.py:f"),
        ("llm-rubric: Is kind", "llm-rubric", "Is kind"), ("not-contains: a:b", "not-contains", "a:b"),
        ("similar(0.8): hi", "similar", "hi"), ("contains-all: a, b", "contains-all", ["a", "b"]),
        ("trajectory:tool-used: f", "trajectory:tool-used", "f"), ("regex: ^a\nb", "regex", "^a\nb"),
    ],
)  # fmt: skip
def test_cell_is_read_as_promptfoo_reads_it(cell: str, kind: str, value: Any) -> None:
    assert assertion_of_cell(cell) == {"type": kind, "value": value}


@pytest.mark.parametrize(
    "tests",
    ["t/a.yaml", "file://t/a.yaml", ["file://./t/*.yaml"], "file://t/a.json", ["t/a.jsonl"], {"path": "t/a.json"}],
)
def test_files_of_tests_are_followed_inside_the_folder(tmp_path: Path, tests: Any) -> None:
    data = yaml.safe_load(YAML_TESTS)
    config = {"tests": tests, "defaultTest": "file://default.yml"}
    path = write(
        tmp_path, config, t__a_yaml=YAML_TESTS, t__a_json=json.dumps(data),
        t__a_jsonl="\n\n".join(map(json.dumps, data)), default_yml="assert: [{type: llm-rubric, value: Is kind}]",
    )  # fmt: skip
    (tmp_path / "t/.hidden.yaml").write_text("- vars: {q: c}", encoding="utf-8")
    first, second = read(path, strict=True)
    assert [c.requirement for c in first.rubric.criteria] == ["Is kind", "contains: '{{q}}'"]
    assert [c.requirement for c in second.rubric.criteria] == ["Is kind"]
    assert (first.input, second.input) == ("a", "b")


def test_yaml_named_by_a_path_has_rows_and_a_folder_has_cases(tmp_path: Path) -> None:
    path = write(tmp_path, {"tests": [{"path": "rows.yaml"}]}, rows_yaml="[{q: 1, __expected: 'equals: {{q}}'}]")
    [case] = read(path)
    assert (case.input, case.rubric.criteria[0].check is not None) == ("1", True)
    path = write(tmp_path, {"tests": "./cases/"})
    (tmp_path / "cases/hello").mkdir(parents=True)
    (tmp_path / "cases/hello/case.yaml").write_text("{assert: [Greets], input: Hi}", encoding="utf-8")
    assert [(case.id, case.input) for case in read(path)] == [("hello", "Hi")]


def test_scenario_has_each_test_with_each_configuration(tmp_path: Path) -> None:
    kind = {"type": "llm-rubric", "value": "Is in {{lang}}"}
    scenario = {
        "config": [{"id": "fr", "vars": {"lang": "French"}, "assert": [kind]}, {"vars": {"lang": "Greek"}}],
        "tests": [{"description": "hello", "vars": {"q": "Hi"}, "assert": [{"type": "contains", "value": "!"}]}],
    }
    french, greek = read(write(tmp_path, {"scenarios": [scenario]}))
    assert (french.id, greek.id) == ("fr, hello", "hello")
    assert [c.requirement for c in french.rubric.criteria] == ["Is in French", "contains: '!'"]
    assert [c.requirement for c in greek.rubric.criteria] == ["contains: '!'"]
    files = {"s__a_yaml": yaml.safe_dump(scenario), "s__b_yaml": yaml.safe_dump([scenario])}
    assert len(read(write(tmp_path, {"scenarios": ["file://s/*.yaml"], "tests": [{"vars": {}}]}, **files))) == 4
    scenario = {"config": "file://c.csv", "tests": "file://t.yaml"}
    path = write(
        tmp_path, {"scenarios": [scenario]}, c_csv="lang\nFrench\nGreek\n", t_yaml=yaml.safe_dump({"assert": [kind]})
    )
    assert [case.rubric.criteria[0].requirement for case in read(path)] == ["Is in French", "Is in Greek"]


def test_template_of_an_assertion_is_filled_in_and_a_missing_one_refused() -> None:
    template = {"type": "llm-rubric", "value": "Is kind", "weight": 2}
    config: dict[str, Any] = {
        "assertionTemplates": {"kind": template, "again": {"$ref": "#/assertionTemplates/again"}},
        "tests": [{"assert": [{"$ref": "#/assertionTemplates/kind", "metric": "tone"}]}],
    }
    [criterion] = Rubric.from_dict(config).criteria
    assert (criterion.requirement, criterion.weight, criterion.tags) == ("Is kind", 2, ("tone",))
    for name in ("kid", "again"):
        config["tests"][0]["assert"] = [{"$ref": f"#/assertionTemplates/{name}"}]
        with pytest.raises(RubricError, match=r"assert\[0\] `\$ref`: names no assertion"):
            Rubric.from_dict(config)


def test_test_that_leaves_out_the_default_assertions_keeps_its_other_defaults(tmp_path: Path) -> None:
    own = {"type": "llm-rubric", "value": "Says {{word}}"}
    config = {
        "defaultTest": {"vars": {"word": "42"}, "assert": [{"type": "llm-rubric", "value": "Is kind"}]},
        "tests": [{"options": {"disableDefaultAsserts": True}, "assert": [own]}, {"assert": [own]}],
    }
    only_own, both = read(write(tmp_path, config))
    assert [c.requirement for c in only_own.rubric.criteria] == ["Says 42"]
    assert [c.requirement for c in both.rubric.criteria] == ["Is kind", "Says 42"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gen.py:create", "is code"), ("file://gen.mjs", "is code"), ("https://x.org/a.csv", "nothing is fetched"),
        ("huggingface://datasets/a/b", "nothing is fetched"), ("az://a/b.csv", "nothing is fetched"),
        ("t.xlsx#Sheet2", "is a spreadsheet"), (7, "7 is not a test"),
    ],
)  # fmt: skip
def test_source_that_is_not_read_is_reported_and_refused_if_strict_or_alone(
    tmp_path: Path, name: Any, words: str
) -> None:
    config = {"tests": [name, {"assert": [{"type": "llm-rubric", "value": "Is kind"}]}]}
    path = write(tmp_path, config)
    with pytest.warns(UserWarning, match=words):
        assert len(list(load_eval_cases(path))) == 1
    with pytest.raises(RubricError, match=words):
        read(path, strict=True)
    with pytest.raises(RubricError, match=words):
        read(write(tmp_path, {"tests": name}))
    with pytest.raises(RubricError, match="is not a list of tests"):
        read(write(tmp_path, {"tests": {"assert": ["x"]}, "defaultTest": config["tests"][1]}))
    with pytest.warns(UserWarning, match=words):
        assert len(Rubric.from_dict(config).left_out) == 1


def test_configuration_whose_rows_have_variables_only_is_one_rubric_of_the_default_assertions(tmp_path: Path) -> None:
    config = {"tests": "rows.csv", "defaultTest": {"assert": [{"type": "llm-rubric", "value": "Is kind"}]}}
    rubric = Rubric.from_file(write(tmp_path, config, rows_csv="q\na\nb\n"))
    assert (len(rubric), rubric.left_out) == (1, ())
    with pytest.raises(RubricError, match="load_eval_cases"):
        Rubric.from_file(write(tmp_path, config, rows_csv="q,__expected\na,x\nb,y\n"))
    with pytest.warns(UserWarning, match="only where the configuration is read from its file"):
        assert Rubric.from_dict(config).left_out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../out.yaml", "outside the folder"), ("t/../../out.yaml", "outside the folder"), ("link.yaml", "outside"),
        ("l*.yaml", "outside the folder"), ("folder/out.yaml", "outside the folder"), ("loop.yaml", "cannot|no file"),
        ("none.yaml", "stands for no file"), ("n*.yaml", "stands for no file"), ("a\x00.yaml", "cannot|no file"),
        ("note.txt", "CSV, JSON, JSONL and YAML"), ("own.yaml", "configuration of its own"), ("text.yaml", "be a test"),
        ("twice.csv", "column 'a' twice"), ("cut.csv", "is not CSV"), ("short.csv", "line 2: has 1 cells"),
        ("bad.csv", "must be a number"), ("cut.jsonl", "line 2: is not JSON"), ("twice.json", "'a' twice"),
        ("deep.jsonl", "50 levels"), ("bytes.csv", "is not text"),
    ],
)  # fmt: skip
def test_file_outside_the_folder_or_without_tests_is_refused_in_one_line(tmp_path: Path, name: str, words: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "out.yaml").write_text(YAML_TESTS, encoding="utf-8")
    (folder / "link.yaml").symlink_to(tmp_path / "out.yaml")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "loop.yaml").symlink_to(folder / "loop.yaml")
    path = write(
        folder, {"tests": [name]}, note_txt="x", own_yaml="tests: []", text_yaml="[a]", twice_csv="a,b,a\n1,2,3\n",
        cut_csv='a,b\n1,"2\n', short_csv="a,b\n1\n", bad_csv="__threshold\nhalf\n", cut_jsonl='{"vars": {}}\n{"va',
        twice_json='{"a": 1, "a": 2}', deep_jsonl="[" * 60 + "]" * 60,
    )  # fmt: skip
    (folder / "bytes.csv").write_bytes(b"a\n\xff\n")
    with pytest.raises(RubricError, match=words) as refusal:
        read(path)
    assert len(str(refusal.value).splitlines()) == 1
    with pytest.raises(RubricError, match="outside the folder"):
        read(write(folder, {"tests": str(tmp_path / "out.yaml")}))


@pytest.mark.sizes
def test_files_of_tests_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"t{index}_csv": "a\n" + f"{'x' * 100_000}\n" * 60 for index in range(2)}
    path = write(tmp_path, {"tests": ["t0.csv", "t1.csv"]}, **files)
    with pytest.raises(RubricError, match="more than 10,000,000 characters"):
        read(path)
    with pytest.raises(RubricError, match="more than 100,000 values"):
        read(write(tmp_path, {"tests": ["t.csv"]}, t_csv="a,b,c\n" + "1,2,3\n" * 25_000))
    monkeypatch.setattr(suite_files, "MAX_FILES", 1)
    with pytest.raises(RubricError, match="more than 1 files"):
        read(write(tmp_path, {"tests": "t*.csv"}))
    many = [{"vars": {}}] * 400
    with pytest.raises(RubricError, match="stands for more than 100,000 tests"):
        read(write(tmp_path, {"scenarios": [{"config": many, "tests": many}]}))
