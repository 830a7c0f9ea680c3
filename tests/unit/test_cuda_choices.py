"""What solvers choose where the channel has builds for CPUs and for GPUs.

The channel has every package of the plan with its real name, build, dependencies and constraints,
and nothing inside: so the choices are the real channel's, without its gigabytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ddlce.engine.index import index_channel
from ddlce.engine.render import Output
from ddlce.engine.solve import solve
from ddlce.errors import InputError
from ddlce.plan import Plan, make_plan
from ddlce.settings import load_settings
from support.minichannel import Pkg, pack

#: What conda's clients see of a machine without a GPU, and of its driver.
MACHINE = {"__glibc": "2.28", "__linux": "4.18", "__unix": "0"}
POWER = "linux-ppc64le"


def described(output: Output) -> Pkg:
    """An empty package with the output's metadata."""
    requirements = output.rendered.get("requirements", {})
    variant = output.rendered["build"].get("variant") or {}
    down = int(variant.get("down_prioritize_variant") or 0)
    features = [f"{output.name}-p-{n}" for n in range(down)]
    return Pkg(
        output.name,
        output.version,
        depends=[spec for spec in requirements.get("run", ()) if isinstance(spec, str)],
        constrains=[s for s in requirements.get("run_constraints", ()) if isinstance(s, str)],
        build=output.build,
        noarch="generic" if output.subdir == "noarch" else None,
        subdir=output.subdir,
        extra={"track_features": " ".join(features)} if features else {},
    )


def make_channel(folder: Path, *plans: Plan) -> Path:
    """A channel of what the plans make."""
    outputs = {o.filename: o for plan in plans for s in plan.steps.values() for o in s.outputs}
    for output in outputs.values():
        pack(described(output), folder)
    index_channel(folder)
    return folder


def offered(folder: Path, *cudas: str) -> Path:
    """A channel with the packages for CPUs, and those for some versions of CUDA."""
    return make_channel(folder, *(make_plan(load_settings(), cuda=cuda) for cuda in cudas))


@pytest.fixture(scope="module", params=[("13.0",), ("13.0", "12.8")], ids=["13.0", "both"])
def channel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the release for GPUs; also with the one for CUDA 12.8 beside it."""
    return offered(tmp_path_factory.mktemp("choices") / "channel", *request.param)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return offered(tmp_path_factory.mktemp("both") / "channel", "13.0", "12.8")


def chosen(
    channel: Path, *specs: str, driver: str = "", subdir: str = "linux-64"
) -> dict[str, str]:
    """Name → build of what is installed on a machine whose driver is for this CUDA."""
    machine = {**MACHINE, **({"__cuda": driver} if driver else {})}
    cache = channel.parent / "cache"
    found = solve([*specs], {"ddl-ce": channel.as_uri()}, subdir, machine, cache)
    return {package.name: package.build for package in found}


@pytest.mark.parametrize("driver", ["", "13.0"])
def test_nobody_gets_cuda_without_asking(channel: Path, driver: str) -> None:
    builds = chosen(channel, "ddl-ce", driver=driver)
    assert builds["pytorch"].startswith("cpu_")
    assert not {"cuda-version", "nccl", "libcublas"} & builds.keys()
    for name in ("ddl", "lms-torch"):
        assert "cuda" not in builds[name]


@pytest.mark.parametrize("spec", ["ddl-ce-gpu", "pytorch-gpu", "pytorch=2.13=cuda*"])
def test_what_is_for_gpus_comes_with_all_that_it_needs(channel: Path, spec: str) -> None:
    builds = chosen(channel, spec, driver="13.0")
    assert builds["pytorch"].startswith("cuda130_")
    assert {"cuda-version", "nccl", "libcudnn", "triton"} <= builds.keys()


def test_the_release_for_gpus_has_every_build_for_cuda(channel: Path) -> None:
    builds = chosen(channel, "ddl-ce-gpu", driver="13.1")
    for name in ("ddl", "horovod", "lms-torch", "pytorch", "torchvision"):
        assert builds[name].startswith("cuda130_"), name
    assert builds["tensorflow"].startswith("cpu_")
    assert "cuda" not in builds["ddl-torch"]  # one build for both


@pytest.mark.parametrize("spec", ["ddl-ce-gpu", "pytorch-gpu", "pytorch=2.13=cuda*"])
@pytest.mark.parametrize("driver", ["", "11.8"])
def test_a_machine_whose_driver_will_not_do_is_refused(
    channel: Path, spec: str, driver: str
) -> None:
    with pytest.raises(InputError, match="__cuda"):
        chosen(channel, spec, driver=driver)


def test_a_driver_for_cuda_12_does_not_run_cuda_13(channel: Path) -> None:
    with pytest.raises(InputError, match="__cuda"):
        chosen(channel, "pytorch=2.13=cuda*", driver="12.4")


def test_the_build_for_cpus_can_be_asked_for(channel: Path) -> None:
    builds = chosen(channel, "pytorch=*=cpu_*", "ddl", driver="13.0")
    assert builds["pytorch"].startswith("cpu_")
    assert "nccl" not in builds


def test_lms_and_ddl_follow_pytorch(channel: Path) -> None:
    builds = chosen(channel, "pytorch-gpu", "lms-torch", "ddl-torch", driver="13.0")
    for name in ("ddl", "lms-torch"):
        assert builds[name].startswith("cuda130_"), name


@pytest.fixture(scope="module")
def platforms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The channel of both platforms, each with its CUDA."""
    settings = load_settings()
    plans = make_plan(settings, cuda="13.0"), make_plan(settings, POWER, "12.4")
    return make_channel(tmp_path_factory.mktemp("platforms") / "channel", *plans)


@pytest.mark.parametrize("driver", ["", "12.4"])
def test_on_power_nobody_gets_cuda_without_asking(platforms: Path, driver: str) -> None:
    for spec in ("ddl-ce", "ddl", "ddl-torch"):
        builds = chosen(platforms, spec, driver=driver, subdir=POWER)
        assert builds["ddl"].startswith("py313"), spec
        assert not {"cuda-version", "cuda-cudart", "nccl"} & builds.keys()


@pytest.mark.parametrize("driver", ["", "12.0", "12.4"])
def test_on_power_libddl_for_cuda_is_to_be_had_by_name(platforms: Path, driver: str) -> None:
    builds = chosen(platforms, "ddl=*=cuda*", driver=driver, subdir=POWER)
    assert builds["ddl"].startswith("cuda124_py313")
    assert "cuda-version" in builds
    # PyTorch there is the build for CPUs, and both may be in one environment.
    together = chosen(platforms, "ddl=*=cuda*", "ddl-torch", driver=driver, subdir=POWER)
    assert together["pytorch"].startswith("cpu_")


def test_on_power_an_older_driver_is_refused(platforms: Path) -> None:
    with pytest.raises(InputError, match="__cuda"):
        chosen(platforms, "ddl=*=cuda*", driver="11.8", subdir=POWER)


def test_the_cuda_of_another_platform_is_not_taken(platforms: Path) -> None:
    """cuda-version is noarch: both are in one folder."""
    assert chosen(platforms, "ddl=*=cuda*", driver="13.0")["ddl"].startswith("cuda130_")
    with pytest.raises(InputError):
        chosen(platforms, "ddl=*=cuda124*", driver="13.0")
    with pytest.raises(InputError):
        chosen(platforms, "pytorch-gpu", driver="13.0", subdir=POWER)


#: What envs/ddl-ce-gpu12.yaml asks for.
SPECS12 = yaml.safe_load((load_settings().tree / "envs" / "ddl-ce-gpu12.yaml").read_text())["specs"]


@pytest.mark.parametrize("driver", ["12.8", "13.0"])
def test_the_release_for_cuda_12_has_every_build_for_it(both: Path, driver: str) -> None:
    builds = chosen(both, *SPECS12, driver=driver)
    for name in ("ddl", "ddl-ce-gpu", "horovod", "lms-torch", "pytorch", "pytorch-gpu"):
        assert builds[name].startswith("cuda128_"), name
    for name in ("tensorflow", "tensorflow-gpu"):
        assert builds[name].startswith("cuda128_"), name


def test_a_driver_for_cuda_12_gets_what_it_runs(both: Path) -> None:
    builds = chosen(both, "ddl-ce-gpu", driver="12.8")
    assert builds["pytorch"].startswith("cuda128_")
    builds = chosen(both, "ddl-ce-gpu", driver="13.0")
    assert builds["pytorch"].startswith("cuda130_")  # the newer of the two that it runs


@pytest.mark.parametrize("driver", ["", "12.8", "13.0"])
@pytest.mark.parametrize("spec", ["ddl-ce", "ddl-torch", "horovod", "lms-torch", "pytorch"])
def test_cuda_12_changes_nothing_for_others(both: Path, spec: str, driver: str) -> None:
    builds = chosen(both, spec, driver=driver)
    assert builds["pytorch"].startswith("cpu_")
    assert not {"cuda-version", "nccl", "libcublas"} & builds.keys()


@pytest.mark.parametrize("driver", ["", "12.8", "13.0"])
def test_nobody_gets_tensorflow_for_gpus_without_asking(both: Path, driver: str) -> None:
    builds = chosen(both, "tensorflow", driver=driver)
    assert builds["tensorflow"].startswith("cpu_")
    assert "libcublas" not in builds


@pytest.mark.parametrize("driver", ["", "11.8"])
def test_cuda_12_needs_a_driver_for_it(both: Path, driver: str) -> None:
    with pytest.raises(InputError, match="__cuda"):
        chosen(both, *SPECS12, driver=driver)
