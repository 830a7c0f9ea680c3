"""What solvers choose where the channel has builds for CPUs and for GPUs.

The channel has every package of the plan with its real name, build, dependencies and constraints,
and nothing inside: so the choices are the real channel's, without its gigabytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = make_plan(load_settings(), cuda="13.0")
    return make_channel(tmp_path_factory.mktemp("choices") / "channel", plan)


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
    for name in ("ddl", "horovod", "lms-torch", "pytorch"):
        assert builds[name].startswith("cuda130_"), name
    assert builds["tensorflow"].startswith("cpu_")
    assert "cuda" not in builds["ddl-torch"]  # one build for both


@pytest.mark.parametrize("spec", ["ddl-ce-gpu", "pytorch-gpu", "pytorch=2.13=cuda*"])
@pytest.mark.parametrize("driver", ["", "12.4"])
def test_a_machine_whose_driver_will_not_do_is_refused(
    channel: Path, spec: str, driver: str
) -> None:
    with pytest.raises(InputError, match="__cuda"):
        chosen(channel, spec, driver=driver)


def test_the_build_for_cpus_can_be_asked_for(channel: Path) -> None:
    builds = chosen(channel, "pytorch=*=cpu_*", "ddl", driver="13.0")
    assert builds["pytorch"].startswith("cpu_")
    assert "nccl" not in builds


def test_lms_and_ddl_follow_pytorch(channel: Path) -> None:
    builds = chosen(channel, "pytorch-gpu", "lms-torch", "ddl-torch", driver="13.0")
    for name in ("ddl", "lms-torch"):
        assert builds[name].startswith("cuda130_"), name


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The channel of both platforms, each with its CUDA."""
    settings = load_settings()
    plans = make_plan(settings, cuda="13.0"), make_plan(settings, POWER, "12.4")
    return make_channel(tmp_path_factory.mktemp("both") / "channel", *plans)


@pytest.mark.parametrize("driver", ["", "12.4"])
def test_on_power_nobody_gets_cuda_without_asking(both: Path, driver: str) -> None:
    for spec in ("ddl-ce", "ddl", "ddl-torch"):
        builds = chosen(both, spec, driver=driver, subdir=POWER)
        assert builds["ddl"].startswith("py313"), spec
        assert not {"cuda-version", "cuda-cudart", "nccl"} & builds.keys()


@pytest.mark.parametrize("driver", ["", "12.0", "12.4"])
def test_on_power_libddl_for_cuda_is_to_be_had_by_name(both: Path, driver: str) -> None:
    builds = chosen(both, "ddl=*=cuda*", driver=driver, subdir=POWER)
    assert builds["ddl"].startswith("cuda124_py313")
    assert "cuda-version" in builds
    # PyTorch there is the build for CPUs, and both may be in one environment.
    together = chosen(both, "ddl=*=cuda*", "ddl-torch", driver=driver, subdir=POWER)
    assert together["pytorch"].startswith("cpu_")


def test_on_power_an_older_driver_is_refused(both: Path) -> None:
    with pytest.raises(InputError, match="__cuda"):
        chosen(both, "ddl=*=cuda*", driver="11.8", subdir=POWER)


def test_the_cuda_of_another_platform_is_not_taken(both: Path) -> None:
    """cuda-version is noarch: both are in one folder."""
    assert chosen(both, "ddl=*=cuda*", driver="13.0")["ddl"].startswith("cuda130_")
    with pytest.raises(InputError):
        chosen(both, "ddl=*=cuda124*", driver="13.0")
    with pytest.raises(InputError):
        chosen(both, "pytorch-gpu", driver="13.0", subdir=POWER)
