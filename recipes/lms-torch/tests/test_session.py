"""Switching on and off, IBM's calls, reports, the command line, and what each mistake says."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import lms
import pytest
import torch
from lms.paging.pinned_slabs import PAGE, SlabPool
from lms.sizes import parse_size, size_text
from models import batch, mlp, mlp_step, train

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("12GiB", 12 << 30), ("1.5 kib", 1536), ("2GB", 2 * 10**9), ("7", 7), ("3m", 3 << 20)],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    ("size", "says"),
    [
        ("12 apples", "limit '12 apples' is no size in bytes; write for example \"12GiB\""),
        ("", "is no size in bytes"),
        ("-1GiB", "is no size in bytes"),
        (0, "limit must be at least one byte"),
        (float("nan"), "at least one byte"),
        (float("inf"), "below 2^63"),
        (True, 'limit must be a number of bytes or text such as "12GiB", not bool'),
        ([], "not list"),
    ],
)
def test_bad_limits(size: object, says: str) -> None:
    with pytest.raises(lms.LimitError) as error:
        lms.LMS(size, device=lms.SimulatedDevice())  # type: ignore[arg-type]
    assert says in str(error.value)


def test_size_text() -> None:
    texts = [size_text(n) for n in (5, 1 << 10, 3 << 29, -(1 << 31), 1 << 42)]
    assert texts == ["5 B", "1 KiB", "1.5 GiB", "-2 GiB", "4 TiB"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu() -> None:
    with pytest.raises(lms.LMSError, match="torch sees no GPU, so there is no memory to save"):
        lms.enable()


def test_twice_and_never() -> None:
    device = lms.SimulatedDevice()
    for call in (lms.disable, lms.current, lms.report):
        with pytest.raises(lms.LMSError, match=r"LMS is not on; switch it on with lms.enable\(\)"):
            call()
    lms.enable("1GiB", device=device)
    try:
        with pytest.raises(lms.LMSError, match="LMS is on already; switch it off first"):
            lms.enable("1GiB", device=device)
        with pytest.raises(lms.LMSError, match="no iteration has been learned yet"):
            lms.report()
    finally:
        lms.disable()
    with pytest.raises(lms.LMSError, match="LMS has not been on yet"):
        lms.LMS(device=device).report()


def test_switched_off_inside_its_with() -> None:
    device = lms.SimulatedDevice()
    with lms.LMS("1GiB", device=device):
        lms.disable()
        torch.func.grad(torch.sum)(torch.ones(3))  # torch refuses this under LMS
        inner = lms.enable("1GiB", device=device)
    assert lms.current() is inner  # the block was not its own
    lms.disable()


def test_backward_after_it_was_switched_off() -> None:
    model, device = mlp(2), lms.SimulatedDevice()
    model(batch()).sum().backward()
    plain = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with device:
        with lms.LMS(smallest=1, device=device):
            loss = model(batch()).sum()
        loss.backward()
    assert all(map(torch.equal, plain, (p.grad for p in model.parameters())))
    assert device.moved > 0


class CardOfOneGiB(lms.SimulatedDevice):
    """Refuses a limit above what it has, as a GPU does."""

    def cap(self, limit: int) -> int:
        if limit > self.total:
            raise lms.LimitError("limit is above what the device has")
        return super().cap(limit)


def test_calls_of_ibm(monkeypatch: pytest.MonkeyPatch) -> None:
    device = CardOfOneGiB("1GiB")
    monkeypatch.setattr("lms.session.cuda_device", lambda: device)
    cuda = torch.cuda
    assert not cuda.get_enabled_lms()
    cuda.set_limit_lms(1 << 29)
    cuda.set_size_lms(1024)
    assert (cuda.get_limit_lms(), cuda.get_size_lms()) == (1 << 29, 1024)
    cuda.set_enabled_lms(True)
    try:
        assert cuda.get_enabled_lms()
        assert device.budget == 1 << 29
        cuda.set_limit_lms(1 << 28)  # programs set it before or after
        assert (device.budget, cuda.get_limit_lms()) == (1 << 28, 1 << 28)
        with pytest.raises(lms.LimitError, match="above what the device has"):
            cuda.set_limit_lms(1 << 50)
        assert (device.budget, cuda.get_limit_lms()) == (1 << 28, 1 << 28)
        cuda.set_size_lms(512)
        model = mlp(3)
        with device:
            for _ in range(4):
                loss = model(batch()).sum()
                before = device.used
                freed = cuda.reclaim_inactive()
                assert before - device.used == freed
                loss.backward()
        assert freed > 0
    finally:
        cuda.set_enabled_lms(False)
        cuda.set_limit_lms(0)
        cuda.set_size_lms("1MiB")
    assert not cuda.get_enabled_lms()
    with pytest.raises(lms.LMSError, match="LMS is not on"):
        cuda.reclaim_inactive()
    with lms.LMS(device=device), pytest.raises(lms.LimitError, match="give the size there"):
        cuda.set_size_lms(2048)


def test_calls_of_ibm_need_no_import(tmp_path: Path) -> None:
    """Programs that were written for IBM's PyTorch import torch alone."""
    sources = Path(lms.__file__).parents[1]
    if (sources / "cmake").is_dir():  # not installed
        (tmp_path / "lms_torch-0.dist-info").mkdir()
        (tmp_path / "lms_torch-0.dist-info" / "METADATA").write_text("Name: lms-torch\n")
        entry_points = (sources / "cmake" / "entry_points.txt").read_text()
        (tmp_path / "lms_torch-0.dist-info" / "entry_points.txt").write_text(entry_points)
    code = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(sources)!r}]
import torch
assert "lms" not in sys.modules
torch.cuda.set_limit_lms(1 << 30)
assert torch.cuda.get_limit_lms() == 1 << 30 and not torch.cuda.get_enabled_lms()
if not torch.cuda.is_available():
    try:
        torch.cuda.set_enabled_lms(True)
    except RuntimeError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert torch.cuda.is_available() or "torch sees no GPU" in done.stdout


def test_report() -> None:
    plain = train(*mlp_step())
    report = train(*mlp_step(), limit=int(0.7 * max(plain.peaks))).report
    assert report is not None
    found = json.loads(report.as_json())
    assert found["moved"] == sum(block["nbytes"] for block in found["swapped"]) > 0
    assert found["predicted_peak"] == max(found["curve"]) <= found["limit"]
    assert max(found["curve_before"]) == found["demand"] > found["limit"]
    text = str(report)
    assert f"swapped         {len(report.swapped)} storages, {size_text(report.moved)}" in text
    drawn = ElementTree.fromstring(lms.plot(report))
    lines = drawn.findall("{http://www.w3.org/2000/svg}polyline")
    points = [line.attrib["points"].split() for line in lines]
    assert [len(line) for line in points] == [2 * len(report.curve)] * 2


def run(*words: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(lms.__file__).parents[1])
    code = f"import sys; sys.path[:0] = [{root!r}, {str(HERE)!r}]; import runpy; "
    code += "sys.argv[0] = 'lms'; runpy.run_module('lms', run_name='__main__')"
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_plan_from_the_command_line(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    done = run("large:make_step", "--limit", "12GiB", "--json", "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["predicted_peak"] <= 12 << 30 < found["demand"]
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["large:make_step", "--limit", "many"], "limit 'many' is no size in bytes"),
        (["nowhere:make", "--limit", "1GiB"], "there is no function nowhere:make: No module"),
        (["large:nothing", "--limit", "1GiB"], "there is no function large:nothing: "),
        (["large:make_step", "--limit", "5GiB"], "short; raise the limit"),
    ],
)
def test_mistakes_on_the_command_line(words: list[str], says: str) -> None:
    done = run(*words)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_slabs() -> None:
    pool = SlabPool(8 * PAGE, lambda n: torch.empty(n, dtype=torch.uint8))
    first, second = pool.take(3 * PAGE - 5), pool.take(PAGE)
    assert first.bytes.numel() == 3 * PAGE - 5
    assert (pool.total, pool.free) == (8 * PAGE, 4 * PAGE)
    del first
    third = pool.take(2 * PAGE)  # where the first was
    assert third.bytes.data_ptr() < second.bytes.data_ptr()
    large = pool.take(20 * PAGE + 1)
    assert pool.total == 29 * PAGE
    del second, third, large
    assert pool.free == pool.total
    whole = pool.take(8 * PAGE)  # what was given back is one range again
    assert pool.total == 29 * PAGE
    assert whole.bytes.numel() == 8 * PAGE


def test_simulated_memory_and_clock() -> None:
    device = lms.SimulatedDevice("8KiB", lms.Speed(arithmetic=1e9, memory=1e9, launch=1e-6))
    with device:
        x = torch.zeros(1024)
        assert (device.used, device.clock) == (4096, pytest.approx(4096e-9))
        del x
        assert (device.used, device.highest) == (0, 4096)
        a, b = torch.zeros(16, 16), torch.zeros(16, 16)
        start = device.clock
        a @ b
        assert device.clock - start == pytest.approx(2 * 16**3 / 1e9)
        with pytest.raises(lms.SimulatedOutOfMemory, match="out of memory: 8 KiB more make 10 KiB"):
            torch.zeros(2048)
