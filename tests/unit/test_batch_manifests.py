"""Manifests of `ddlrun -script mpijob` and `trainjob` fit the descriptions of their APIs.

Pods, TrainJob and its runtime: the models of the package `kubeflow-trainer-api`, made of the
cluster's own OpenAPI description. MPIJob's own fields: from the MPI operator's reference of
`kubeflow.org/v2beta1`, since no package has them. All fields that are not described are refused.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
import yaml
from kubeflow_trainer_api.models.io_k8s_api_core_v1_pod_template_spec import (
    IoK8sApiCoreV1PodTemplateSpec,
)
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
from kubeflow_trainer_api.models.trainer_v1alpha1_training_runtime import (
    TrainerV1alpha1TrainingRuntime,
)
from pydantic import BaseModel

from support.loopback import Silent, listening
from support.run import ok, run

REPO = Path(__file__).parents[2]
SOURCE = REPO / "recipes/ddl/src/python"
KUBECTL = shutil.which("kubectl")
Schema = dict[str, Any]
Result = subprocess.CompletedProcess[str]

WHOLE: Schema = {"type": "integer", "minimum": 0}
TEXT: Schema = {"type": "string"}


def ddlrun(*words: str, **variables: str) -> Result:
    path = f"{Path(KUBECTL or sys.executable).parent}:/usr/bin:/bin"
    return run(
        [sys.executable, "-m", "ddl.launch.cli", *words],
        env={"PYTHONPATH": str(SOURCE), "PATH": path, **variables},
        timeout=60,
    )


def manifests(*words: str) -> list[Any]:
    done = ok(ddlrun("-script", *words))
    return list(yaml.safe_load_all(done.stdout))


def closed(schema: Any) -> Any:
    """The schema, with fields refused that it does not describe."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        found.setdefault("additionalProperties", False)
    return found


#: The package has empty models for these two.
SCALARS: dict[str, Schema] = {
    "IoK8sApimachineryPkgApiResourceQuantity": {"type": ["string", "number"]},
    "IoK8sApimachineryPkgUtilIntstrIntOrString": {"type": ["string", "integer"]},
}


def schema_of(model: type[BaseModel]) -> Schema:
    found: Schema = closed(model.model_json_schema(by_alias=True))
    definitions = found["$defs"]
    found["$defs"] = definitions | {name: SCALARS[name] for name in SCALARS if name in definitions}
    return found


def fields(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": properties, "required": list(required)}
    return found | {"additionalProperties": False}


def mpijob_schema() -> Schema:
    """MPIJob of kubeflow.org/v2beta1, by the MPI operator's reference of its API."""
    pod = schema_of(IoK8sApiCoreV1PodTemplateSpec)
    definitions = pod.pop("$defs")
    replicas = fields(
        replicas=WHOLE,
        restartPolicy={"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
        template=pod,
    )
    scheduling = fields(
        minAvailable=WHOLE,
        queue=TEXT,
        minResources={"type": "object"},
        priorityClass=TEXT,
        scheduleTimeoutSeconds=WHOLE,
    )
    policy = fields(
        cleanPodPolicy={"enum": ["All", "Running", "None"]},
        ttlSecondsAfterFinished=WHOLE,
        activeDeadlineSeconds=WHOLE,
        backoffLimit=WHOLE,
        schedulingPolicy=scheduling,
        suspend={"type": "boolean"},
        managedBy=TEXT,
    )
    spec = fields(
        ("mpiReplicaSpecs",),
        slotsPerWorker=WHOLE,
        runLauncherAsWorker={"type": "boolean"},
        runPolicy=policy,
        mpiReplicaSpecs=fields(("Launcher",), Launcher=replicas, Worker=replicas),
        sshAuthMountPath=TEXT,
        launcherCreationPolicy={"enum": ["AtStartup", "WaitForWorkersReady"]},
        mpiImplementation={"enum": ["OpenMPI", "Intel", "MPICH"]},
    )
    job = fields(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": "kubeflow.org/v2beta1"},
        kind={"const": "MPIJob"},
        metadata=definitions["IoK8sApimachineryPkgApisMetaV1ObjectMeta"],
        spec=spec,
    )
    return job | {"$defs": definitions}


def check(schema: Schema, manifest: Any) -> None:
    jsonschema.Draft202012Validator(schema).validate(manifest)


ASKED = ["-N", "18", "-gpus", "6", "-cores", "7", "-time", "90", "-image", "site/ddl-ce:2026.11"]
SIMPLE = ["-N", "1", "-image", "site/ddl-ce:2026.11"]
WORDS = ["a b", "it's", '"', "$(HOME)", "$HOME", "new\nline", "\\", "ümlaut", "- x", "#", "@{name}"]
WORDS += ["$$", "$$(HOME)", "a$", "$$$", "$$$(HOME)", "$(", "cost: 5$", "$$HOME"]
# Characters that YAML refuses or takes for the end of a line, unless they are escaped.
WORDS += ["\x80\x9f", "\x85", "\u2028 \u2029", "\ufeff", "\ufffe\uffff", "\U0001f600", "\x7e\xa0"]
ARGUMENTS = ["-accelerators", "6", "python", "train.py", *WORDS]


def as_pods_see(arguments: list[str]) -> list[str]:
    """Kubernetes' API of a container's args: `$$` is a dollar, `$(NAME)` a variable's value."""
    values = {"$$": "$", "$(HOME)": "/root"}
    return [
        re.sub(r"\$\$|\$\([^)]*\)", lambda match: values.get(match[0], match[0]), word)
        for word in arguments
    ]


def test_an_mpijob_fits_its_description() -> None:
    job = manifests("mpijob", *ASKED, "-queue", "gold", "python", "train.py", *WORDS)[0]
    check(mpijob_schema(), job)
    spec = job["spec"]
    assert job["metadata"]["name"] == "train"
    assert (spec["mpiImplementation"], spec["slotsPerWorker"]) == ("MPICH", 6)
    assert spec["runPolicy"]["activeDeadlineSeconds"] == 5400
    assert spec["runPolicy"]["schedulingPolicy"]["queue"] == "gold"
    worker, launcher = (spec["mpiReplicaSpecs"][name] for name in ("Worker", "Launcher"))
    assert (worker["replicas"], launcher["replicas"]) == (18, 1)
    pod = worker["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "6", "cpu": "42"}
    assert pod["volumes"][0]["emptyDir"] == {"medium": "Memory"}
    container = launcher["template"]["spec"]["containers"][0]
    assert container["command"] == ["ddlrun"]
    assert as_pods_see(container["args"]) == ARGUMENTS
    assert "resources" not in container


def test_a_trainjob_fits_its_description() -> None:
    runtime, job = manifests("trainjob", *ASKED, "python", "train.py", *WORDS)
    check(schema_of(TrainerV1alpha1TrainingRuntime), runtime)
    check(schema_of(TrainerV1alpha1TrainJob), job)
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"] == "train-ddl"
    assert job["spec"]["activeDeadlineSeconds"] == 5400
    assert runtime["spec"]["mlPolicy"]["numNodes"] == job["spec"]["trainer"]["numNodes"] == 18
    assert job["spec"]["trainer"]["numProcPerNode"] == 6
    assert as_pods_see(job["spec"]["trainer"]["args"]) == ARGUMENTS
    node, launcher = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    limits = node["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "6", "cpu": "42"}
    assert launcher["dependsOn"] == [{"name": "node", "status": "Ready"}]


def test_simple_manifests_fit_too() -> None:
    check(mpijob_schema(), manifests("mpijob", *SIMPLE, "true")[0])
    runtime, job = manifests("trainjob", *SIMPLE, "true")
    check(schema_of(TrainerV1alpha1TrainingRuntime), runtime)
    check(schema_of(TrainerV1alpha1TrainJob), job)


def test_unknown_fields_are_refused_at_every_depth() -> None:
    job = manifests("mpijob", *ASKED, "true")[0]
    runtime, train = manifests("trainjob", *ASKED, "true")
    cases = (
        (mpijob_schema(), job),
        (schema_of(TrainerV1alpha1TrainingRuntime), runtime),
        (schema_of(TrainerV1alpha1TrainJob), train),
    )
    refused = 0
    for schema, manifest in cases:
        for path in folders(manifest):
            if path[-1:] and path[-1] in ("limits", "labels"):
                continue  # any name is one
            wrong = copy.deepcopy(manifest)
            place = wrong
            for key in path:
                place = place[key]
            place["unknownField"] = "x"
            with pytest.raises(jsonschema.ValidationError):
                check(schema, wrong)
            refused += 1
    assert refused > 40


def folders(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each mapping of a manifest."""
    if isinstance(value, dict):
        yield path
    pairs: Any = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else pairs
    for key, inner in pairs:
        yield from folders(inner, (*path, key))


# -- the real kubectl, with a server that takes what is applied ---------------------------------

KINDS = {
    "kubeflow.org/v2beta1": [("mpijobs", "MPIJob")],
    "trainer.kubeflow.org/v1alpha1": [
        ("trainjobs", "TrainJob"),
        ("trainingruntimes", "TrainingRuntime"),
    ],
}


def description(version: str) -> Any:
    """OpenAPI's description by which kubectl knows that the server checks fields itself."""
    group, _, name = version.partition("/")
    paths = {
        f"/apis/{version}/namespaces/{{namespace}}/{plural}/{{name}}": {
            "patch": {
                "parameters": [{"name": "fieldValidation", "in": "query"}],
                "responses": {},
                "x-kubernetes-group-version-kind": {"group": group, "version": name, "kind": kind},
            }
        }
        for plural, kind in KINDS[version]
    }
    return {"openapi": "3.0.0", "info": {"title": "", "version": ""}, "paths": paths}


class Api(Silent):
    """As much of Kubernetes' API as `kubectl apply` asks for."""

    taken: ClassVar[list[Any]] = []

    def answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/apis":
            groups = []
            for version in KINDS:
                group, _, name = version.partition("/")
                each = {"groupVersion": version, "version": name}
                groups.append({"name": group, "versions": [each], "preferredVersion": each})
            self.answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        elif (version := path.removeprefix("/apis/")) in KINDS:
            resources = [
                {"name": name, "kind": kind, "namespaced": True, "verbs": ["get", "create"]}
                for name, kind in KINDS[version]
            ]
            found = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
            self.answer(200, found | {"resources": resources})
        elif path == "/openapi/v3":
            self.answer(
                200, {"paths": {f"apis/{v}": {"serverRelativeURL": f"/o/{v}"} for v in KINDS}}
            )
        elif (version := path.removeprefix("/o/")) in KINDS:
            self.answer(200, description(version))
        elif path == "/api":
            self.answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        else:
            self.answer(
                404,
                {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "status": "Failure",
                    "reason": "NotFound",
                    "code": 404,
                    "message": "not found",
                },
            )

    def do_POST(self) -> None:
        manifest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.taken.append(manifest)
        self.answer(201, manifest)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables for a kubectl that knows our server."""
    Api.taken.clear()
    with listening(Api) as url:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": ""}}],
            "clusters": [{"name": "test", "cluster": {"server": url}}],
        }
        path = tmp_path / "config"
        path.write_text(json.dumps(config))
        yield {"KUBECONFIG": str(path), "HOME": str(tmp_path)}


needs_kubectl = pytest.mark.skipif(not KUBECTL, reason="needs kubectl")


@needs_kubectl
@pytest.mark.parametrize(
    ("system", "name", "kinds"),
    [
        ("mpijob", "mpijob.kubeflow.org/train", ["MPIJob"]),
        ("trainjob", "trainjob.trainer.kubeflow.org/train", ["TrainingRuntime", "TrainJob"]),
    ],
)
def test_kubectl_takes_the_manifest(
    system: str, name: str, kinds: list[str], api: dict[str, str]
) -> None:
    done = ddlrun("-script", system, "-submit", *ASKED, "python", "train.py", *WORDS, **api)
    assert (done.returncode, done.stdout) == (0, f"{name}\n"), done.stderr
    assert [manifest["kind"] for manifest in Api.taken] == kinds


@needs_kubectl
def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    done = ddlrun("-script", "mpijob", "-submit", *ASKED, "python", "train.py", **home)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "kubectl refuses the job (exit status 1): " in done.stderr
    assert "Traceback" not in done.stderr
