"""What ONNX's checker and inference, ONNX Runtime, or a run on zeros say of the results of a model.

They are asked in a process of their own: some models end it, or fill it.

The process is started when it is first asked, answers one model after the other, and ends with this one.
"""

from __future__ import annotations

import atexit
import json
import struct
import subprocess
import sys
from threading import Lock, Timer
from typing import Any, Literal, get_args

from tapestry_plan.onnx import tuning
from tapestry_sets.limits import cut_text

SERVE = '''
import json, struct, sys
sys.path[:] = json.loads(sys.argv[1])
import numpy
from onnx import ModelProto, TensorProto, checker, helper, shape_inference
try:
    import resource
    resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]),) * 2)
except (ImportError, ValueError, OSError):
    pass  # a system without such limits

def by_onnx(model):
    found = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    checker.check_model(found)
    return found

def by_run(model, is_by_all=False):
    from tapestry_plan import ops
    run = ops.run_by_all if is_by_all else ops.run_model
    kinds = {value.name: value.type.tensor_type for value in model.graph.input}
    dtypes = {name: helper.tensor_dtype_to_np_dtype(kind.elem_type) for name, kind in kinds.items()}
    shapes = {name: [dim.dim_value for dim in kind.shape.dim] for name, kind in kinds.items()}
    try:
        made = run(ops.encode_model(model), {n: numpy.zeros(s, dtypes[n]) for n, s in shapes.items()})
    except ValueError:  # which lengths of zero may end
        if not shapes:
            raise
        made = run(ops.encode_model(model), {n: numpy.ones(s, dtypes[n]) for n, s in shapes.items()})
    for value, array in zip(model.graph.output, made, strict=True):
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, code, array.shape))
    return model

def by_all(model):
    return by_run(model, True)

def by_runtime(model):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    def tell(asked):
        session = onnxruntime.InferenceSession(asked.SerializeToString(), options, ["CPUExecutionProvider"])
        return {value.name: value for value in session.get_outputs()}
    told = tell(model)
    asked = ModelProto()
    asked.CopyFrom(model)
    ranks = {name: "rank of " + name for name, made in told.items() if made.type[:7] == "tensor(" and not made.shape}
    for name, rank in ranks.items():  # a session tells no dims of a scalar, and of what has any number of dims
        asked.graph.node.append(helper.make_node("Shape", [name], [rank]))
        asked.graph.output.append(helper.make_empty_tensor_value_info(rank))
    found = tell(asked) if ranks else told
    for value in model.graph.output:
        made = told[value.name]
        dims = [dim if isinstance(dim, int) and dim >= 0 else None for dim in made.shape or ()]
        is_ranked = value.name not in ranks or found[ranks[value.name]].shape == [0]
        value.CopyFrom(helper.make_value_info(value.name, read_type(made.type, dims if is_ranked else None)))
    return model

def read_type(text, dims=None):
    """The type that ONNX Runtime writes as a text; dims are those of a tensor."""
    kind, _, inner = text[:-1].partition("(")
    if kind == "tensor":
        return helper.make_tensor_type_proto(read_code(inner), dims)
    if kind == "map":
        key, _, value = inner.partition(",")
        return helper.make_map_type_proto(read_code(key), read_type(value))
    make = {"seq": helper.make_sequence_type_proto, "optional": helper.make_optional_type_proto}[kind]
    return make(read_type(inner))

def read_code(label):
    return {"float": 1, "double": 11}.get(label) or TensorProto.DataType.Value(label.upper())

read, write = sys.stdin.buffer, sys.stdout.buffer
while head := read.read(9):
    try:
        way, size = struct.unpack("<bq", head)
        found = (by_onnx, by_runtime, by_run, by_all)[way](ModelProto.FromString(read.read(size)))
        sign, data = 1, found.SerializeToString(deterministic=True)
    except Exception as error:
        sign, data = -1, str(error).encode()
    write.write(struct.pack("<q", sign * (len(data) + 1)) + data)
    write.flush()
'''
"""What the process does: who is asked, a model's length and bytes come in; the model that is told goes out, or why not.

A length below 0 that goes out is that of a reason.
"""

Way = Literal["onnx", "runtime", "run", "all"]
_WHO: dict[Way, str] = {
    "onnx": "ONNX's shape inference",
    "runtime": "ONNX Runtime",
    "run": "who runs it whole",
    "all": "who runs it whole",
}


class _Process:
    """The process, and who speaks to it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, data: bytes, by: Way) -> tuple[bool, bytes]:
        """Whether a model was inferred, and its bytes or the reason."""
        with self._lock:
            if self._process is None:
                command = [sys.executable, "-P", "-c", SERVE, json.dumps(sys.path), str(tuning.INFERENCE_NBYTES)]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            to, back = self._process.stdin, self._process.stdout
            assert to is not None and back is not None, "both are pipes"
            clock = Timer(tuning.INFERENCE_SECONDS, self._process.kill)
            clock.start()
            try:
                to.write(struct.pack("<bq", get_args(Way).index(by), len(data)) + data)
                to.flush()
                head = back.read(8)
            except OSError:
                head = b""
            finally:
                clock.cancel()
            if len(head) < 8:
                self._end()
                return False, f"{_WHO[by]} ends on it".encode()
            (size,) = struct.unpack("<q", head)
            return size > 0, back.read(abs(size) - 1)

    def end(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


_PROCESS = _Process()
atexit.register(_PROCESS.end)


def infer_model(model: Any, by: Way = "onnx") -> Any:
    """The model with the types and shapes that somebody finds.

    Parameters
    ----------
    model : onnx.ModelProto
    by : 'onnx', 'runtime', 'run' or 'all'
        ONNX's inference, checked by its schemas; ONNX Runtime, of the outputs; or a run of the model on zeros or, if it
        fails, on ones, of these too: by one that takes it, or by all that have its operators.

    Raises
    ------
    ValueError
        For a model that does not hold together by their rules, and where ONNX Runtime, which is asked, is not there.
    """
    is_found, data = _PROCESS.ask(model.SerializeToString(), by)
    if not is_found:
        raise ValueError(cut_text(" ".join(data.decode(errors="replace").split()), 300))
    return type(model).FromString(data)
