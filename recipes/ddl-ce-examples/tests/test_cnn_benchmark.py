"""ddl-cnn-benchmark: every way on real ranks, its table, and everything that it must refuse."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ddl_ce_examples.cnn import cli
from ddl_ce_examples.cnn.models import CLASSES, NETWORKS

from conftest import Run

LINE = {
    "model": "resnet50",
    "image_size": 224,
    "batch_size": 8,
    "variable_update": "ddl",
    "ranks": 1,
    "num_batches": 10,
    "images_per_second": 10.0,
}
SMALL = ("--model=lenet", "--batch_size=4", "--num_batches=3", "--num_warmup_batches=1")


def write(path: Path, *changes: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps({**LINE, **change}) + "\n" for change in changes))
    return path


@pytest.mark.parametrize(
    ("ranks", "way"),
    [
        (1, "ddl"),
        *((2, way) for way in ("ddl", "horovod", "distributed", "none")),
        *(
            pytest.param(4, way, marks=pytest.mark.slow)
            for way in ("ddl", "horovod", "distributed")
        ),
    ],
)
def test_every_way_on_real_ranks(ddlrun: Run, tmp_path: Path, ranks: int, way: str) -> None:
    file = tmp_path / "results"
    program = ("-m", "ddl_ce_examples.cnn.cli", *SMALL, "--results", str(file))
    result = ddlrun(ranks, *program, f"--variable_update={way}")
    assert result.returncode == 0, result.stderr
    lines = [line.partition("] ")[2] for line in result.stdout.splitlines()]
    assert f"Batch size:  {4 * ranks} global, 4 per rank" in lines
    assert [line.split("\t")[0] for line in lines if "\t" in line] == ["Step", "1", "2", "3"]
    losses = [float(line.split("\t")[2]) for line in lines if re.match(r"\d\t", line)]
    assert all(6 < loss < 8 for loss in losses), "ln(1000) at the start, on any number of ranks"
    (total,) = (line for line in lines if line.startswith("total images/sec: "))
    (written,) = map(json.loads, file.read_text().splitlines())
    assert f"total images/sec: {written.pop('images_per_second'):.2f}" == total
    small = {"model": "lenet", "image_size": 28, "batch_size": 4, "num_batches": 3}
    assert written == {**small, "variable_update": way, "ranks": ranks}


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("trivial", "lenet", "mobilenet") else pytest.param(name, marks=slow)
        for slow in [pytest.mark.slow]
        for name in NETWORKS
    ],
)
@pytest.mark.parametrize("module", ["keras", "tf_keras"])
def test_every_network_takes_its_smallest_images(module: str, name: str) -> None:
    keras = pytest.importorskip(module)
    network = NETWORKS[name]
    model = network.build(keras, network.smallest)
    assert model.output_shape == (None, CLASSES)
    assert model.input_shape == (None, network.smallest, network.smallest, 3)
    assert model.layers[-1].activation.__name__ == "linear", "the loss takes logits"


def test_resnet50_is_the_well_known_one() -> None:
    import keras

    model = NETWORKS["resnet50"].build(keras, 224)
    assert model.count_params() == 25_636_712


def test_some_batches_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--num_batches=5", "--display_every=2", "--image_size=8", "--variable_update=none"]
    assert cli.main([*SMALL, *chosen]) == 0
    steps = re.findall(r"^(\d+)\t", capsys.readouterr().out, re.MULTILINE)
    assert steps == ["1", "2", "4"]


def test_the_scaling_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [{"images_per_second": speed} for speed in (9.0, 10.0, 20.0)]
    more = [
        {"ranks": 2, "images_per_second": 19.0},
        {"ranks": 16, "images_per_second": 120},
        {"ranks": 2, "images_per_second": 12.345, "variable_update": "horovod"},
        {"model": "lenet", "image_size": 28},
    ]
    file = write(tmp_path / "results", *more, *runs)
    assert cli.main(["--table", str(file)]) == 0
    assert capsys.readouterr().out == (
        "resnet50, images of 224 x 224, 8 in a batch of each rank\n"
        "variable_update  ranks  runs  images/sec  speed-up  efficiency\n"
        "ddl                  1     3       10.00      1.00     100.0 %\n"
        "ddl                  2     1       19.00      1.90      95.0 %\n"
        "ddl                 16     1      120.00     12.00      75.0 %\n"
        "horovod              2     1       12.35         -           -\n"
        "\n"
        "lenet, images of 28 x 28, 8 in a batch of each rank\n"
        "variable_update  ranks  runs  images/sec  speed-up  efficiency\n"
        "ddl                  1     1       10.00      1.00     100.0 %\n"
    )


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the program says in its one line, without its name."""
    assert cli.main(arguments) == 2
    found = capsys.readouterr()
    assert found.out == ""
    (line,) = found.err.splitlines()
    head, _, message = line.partition(": error: ")
    assert head == "ddl-cnn-benchmark"
    return message


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--model=resnet51", "--model: invalid choice: 'resnet51' .*lenet.*resnet50"),
        ("--variable_update=nccl", "--variable_update: .*'nccl' .*ddl.*horovod"),
        ("--batch_size=0", "--batch_size: 0 is not a whole number from 1 to 1000000"),
        ("--batch_size=-8", "--batch_size: -8 is not a whole number"),
        ("--batch_size=8.5", "--batch_size: 8.5 is not a whole number"),
        ("--batch_size=", "--batch_size:  is not a whole number"),
        ("--num_batches=1e3", "--num_batches: 1e3 is not a whole number"),
        ("--num_warmup_batches=0", "--num_warmup_batches: 0 is not a whole number from 1"),
        ("--display_every=0", "--display_every: 0 is not"),
        ("--image_size=31", "--image_size=31: resnet50 takes images of 32 to 4096 pixels"),
        ("--image_size=4097", "--image_size=4097: resnet50 takes"),
        ("--batchsize=8", "unrecognized arguments: --batchsize=8"),
    ],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], argument: str, said: str) -> None:
    assert re.search(said, refusal(capsys, argument))


@pytest.mark.parametrize("option", ["--results", "--table"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hello\n", "line 1 is no result of this benchmark; name a file of --results"),
        (b"\n", "line 1 is no result"),
        (b"[1]\n", "line 1 is no result"),
        (json.dumps(LINE).encode() + b'\n{"model": "resnet50"}\n', "line 2 is no result"),
        (json.dumps({**LINE, "ranks": 0}).encode(), "line 1 is no result"),
        (json.dumps({**LINE, "ranks": "2"}).encode(), "line 1 is no result"),
        (json.dumps({**LINE, "ranks": True}).encode(), "line 1 is no result"),
        (json.dumps({**LINE, "images_per_second": float("nan")}).encode(), "line 1 is no result"),
        (b"\x89PNG\xff\xfe", "this is no text; name a file of --results"),
    ],
)
def test_a_file_that_is_none_of_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, content: bytes, said: str
) -> None:
    file = tmp_path / "results"
    file.write_bytes(content)
    assert refusal(capsys, option, str(file)).startswith(f"{file}: {said}")
    assert file.read_bytes() == content, "the file is as it was"


def test_results_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = tmp_path / "no" / "results"
    said = refusal(capsys, "--results", str(absent))
    assert said == f"cannot write {absent}: No such file or directory"
    assert refusal(capsys, "--results", str(tmp_path)).startswith(f"cannot read {tmp_path}: Is a d")


def test_no_table_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent, empty = tmp_path / "absent", write(tmp_path / "empty")
    assert refusal(capsys, "--table", str(absent)).startswith(f"cannot read {absent}: No such file")
    assert refusal(capsys, "--table", str(empty)) == f"{empty}: there are no results in it yet"


def test_other_ranks_leave_the_message_to_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    assert cli.main(["--batch_size=0"]) == 2
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("way", "module"), [("horovod", "horovod.keras"), ("ddl", "ddl_tensorflow")]
)
def test_a_way_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], way: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    said = refusal(capsys, f"--variable_update={way}")
    assert said.startswith(f"--variable_update={way}: there is no module {module}; install")


def run_alone(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ddl_ce_examples.cnn.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | variables,
        check=False,
    )


def test_a_way_that_does_not_see_all_ranks() -> None:
    done = run_alone("--variable_update=distributed", RANK="0", WORLD_SIZE="2", TF_CONFIG="{}")
    assert done.returncode == 2, done.stderr
    sees = "distributed sees 1 ranks, but 2 were started; start me with ddlrun -tf_config\n"
    assert f"error: --variable_update=distributed: {sees}" in done.stderr


def test_a_batch_that_does_not_fit() -> None:
    huge = ("--model=trivial", "--variable_update=none", "--batch_size=1000000")
    done = run_alone(*huge, "--image_size=4096")
    assert done.returncode == 2, done.stderr
    assert "error: --batch_size=1000000 --image_size=4096: this does not fit" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_names_all_models(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    assert ", ".join(NETWORKS) in capsys.readouterr().out
