"""Networks that packages on PyPI ship, and those of tests/models: imported, planned, run, compared with ONNX Runtime.

    python tests/bench/bench_networks.py [--rows "PP-OCRv6;magika"] [--devices 2,3,4,8] [--write]

With `--rows` the other rows of a table that is written stay as they are.

The wheels are downloaded once into a folder of the user's cache, and nothing of them is run: a network is a file in
them. The nine of the package onnx, and those of tests/models, have no trained weights: they get seeded ones. Each row
is a process. The error is max|difference| / max|reference| of the worst output, before softmax or
sigmoid; of every plan the bytes that it predicts and those that a run counts must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_networks.md")
DEVICES = (2, 3, 4, 8)
TOLERANCE = 1e-4
LIMIT_SECONDS = 1800
"""Of wall time; a row that takes longer is said to have been stopped."""


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
    import onnx

    from tapestry_plan.onnx import he_random, light_model

    if network.wheel == LIGHT:
        return light_model(network.file, seed=1)
    if network.wheel == HERE_TOO:
        return he_random(onnx.load(ROOT / HERE_TOO / network.file), seed=1)
    return find_file(network)


def before_last(model: Any) -> tuple[str, ...]:
    """The outputs before the softmax or the sigmoid that makes them: either hides errors where it saturates."""
    from tapestry_plan.onnx import before_softmax

    makers = {out: node for node in model.graph.node for out in node.output}
    names = []
    for name in before_softmax(model):
        at = name
        while at in makers and makers[at].op_type == "Identity":
            at = makers[at].input[0]
        names.append(makers[at].input[0] if at in makers and makers[at].op_type == "Sigmoid" else name)
    return tuple(names)


def measure(name: str, devices: list[int]) -> dict[str, Any]:
    """One row."""
    import onnx
    from test_networks import reference

    from tapestry_exec import run
    from tapestry_exec.run.evaluate import difference
    from tapestry_plan import Mesh, load_onnx, plan

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


def in_own_process(name: str, devices: str) -> dict[str, Any] | str:
    """A row of a process of its own; why there is none."""
    command = [sys.executable, str(HERE), "--only", name, "--devices", devices]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"stopped after {LIMIT_SECONDS} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        begin = max(k for k, text in enumerate(lines) if re.match(r"[\w.]*(Error|UnsupportedOp|Infeasible\w*): ", text))
        told = " ".join(part.strip() for part in lines[begin:])
        folder = "" if NETWORKS[name].is_seeded else f"{find_file(NETWORKS[name]).parent}/"
        return told.replace(folder, "").partition(";")[0].rpartition("UnsupportedOp: ")[2]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(name: str, row: dict[str, Any] | str, devices: list[int]) -> str:
    """A row of the table."""
    if isinstance(row, str):
        return f"| {name} | **{row}** |"
    plans = [row["plans"][str(count)] for count in devices]
    worst = max(one["error"] for one in plans)
    cells = [
        name,
        row["nodes"],
        row["operators"],
        f"{row['imported']:.2f}",
        f"{worst:.1e}" if worst < TOLERANCE else f"**{worst:.1e}**",
        "yes" if all(one["same"] for one in plans) else "**no**",
        ", ".join(f"{one['split']}/{one['all']}" for one in plans),
        ", ".join(f"{one['seconds']:.1f}" for one in plans),
        ", ".join(f"{100 * one['gap']:.2g}" for one in plans),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def read_rows() -> dict[str, str]:
    """The rows that are written already, by network: those that are not measured again stay."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}


def read_notes(again: set[str]) -> list[tuple[list[str], str]]:
    """When the rows that stay were taken, as it is written."""
    text = RESULTS.read_text() if RESULTS.exists() else ""
    notes = []
    for names, when in re.findall(r"^- (.+): (.+ at a load of .+)$", text, re.MULTILINE):
        notes.append(([name for name in names.split("; ") if name not in again], when))
    return [(names, when) for names, when in notes if names]


def write_table(found: dict[str, str], devices: list[int], heads: list[str], load: str) -> None:
    """Write rows into the table, where the others stay."""
    rows = {**read_rows(), **found}
    notes = read_notes({*found}) + [([*found], f"{date.today()} at a load of {load}")]
    told = ", ".join(map(str, devices))
    lines = [f"# Networks from PyPI and from here, {date.today().isoformat()}", "", f"{machine()}, one thread.", ""]
    lines += [
        f"On {told} devices each, of one axis: splits, seconds and gaps are in this order. Errors are the largest",
        "of all of them, before softmax or sigmoid, against ONNX Runtime (aim: 1e-4 of the largest value).",
        "Bytes over each link and the peak memory of each device are compared with those that a run counts.",
        "",
        *heads,
        *(rows[name] for name in NETWORKS if name in rows),
    ]
    wheels = ", ".join(sorted({network.wheel for network in NETWORKS.values() if not network.is_seeded}))
    lines += [
        "",
        f"Files of the wheels {wheels}; `tests/bench/bench_networks.py` names them. The nine that the package",
    ]
    lines += ["onnx ships, AlexNet to ZFNet-512, and the three of tests/models have seeded weights. Taken:", ""]
    lines += [f"- {'; '.join(own)}: {when}" for own, when in notes]
    RESULTS.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"also write the table to {RESULTS.name}")
    parser.add_argument("--rows", help="names that rows begin with, with semicolons between them; without it all")
    parser.add_argument("--devices", default=",".join(map(str, DEVICES)))
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    devices = [int(n) for n in args.devices.split(",")]
    if args.only:
        print(json.dumps(measure(args.only, devices)))
        return
    names = [name for name in NETWORKS if not args.rows or name.startswith(tuple(args.rows.split(";")))]
    heads = ["network", "nodes", "operators", "import CPU s", "error", "bytes as predicted"]
    heads += ["split operators", "plan CPU s", "gap %"]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    print("\n".join(table))
    found, before = {}, os.getloadavg()[0]
    for name in names:
        found[name] = line(name, in_own_process(name, args.devices), devices)
        print(found[name], flush=True)
        if args.write:  # after each, since some take minutes
            write_table(found, devices, table, f"{before:.1f} to {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
