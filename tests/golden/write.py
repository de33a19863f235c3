"""Write the golden results again: ``python tests/golden/write.py [word ...]``.

Run it from the root with ``PYTHONPATH=src``, on one thread. With words only the cases whose name holds one of
them are run; the others stay as they are. The files under ``format1`` were written once, by the first format
of the library, and are never written again.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from cases import cases, describe, named, run
from safetensors.torch import load_file, save

import hcdc

HERE = Path(__file__).resolve().parent
RESULTS, TENSORS = HERE / "golden.json", HERE / "golden.safetensors"


def main(words: list[str]) -> None:
    source = HERE.parents[1] / "src"
    if not Path(hcdc.__file__).resolve().is_relative_to(source):
        sys.exit(f"hcdc is {hcdc.__file__}, not that of {source}; set PYTHONPATH=src")
    torch.set_num_threads(1)
    names = [case.name for case in cases()]
    results = json.loads(RESULTS.read_text()) if words and RESULTS.exists() else {}
    tensors = load_file(TENSORS) if words and TENSORS.exists() else {}
    for case in named(*words):
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as cache:
            os.environ["HCDC_CACHE"] = cache
            results[case.name], learned = describe(case, *run(case))
        tensors = {key: value for key, value in tensors.items() if key.partition("/")[0] != case.name}
        tensors |= {f"{case.name}/{key}": value for key, value in learned.items()}
        print(f"{case.name}: {time.perf_counter() - begun:.2f} s", flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(results[name])}" for name in names if name in results]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    kept = {key: tensors[key] for key in sorted(tensors) if key.partition("/")[0] in names}
    TENSORS.write_bytes(save(kept))


if __name__ == "__main__":
    main(sys.argv[1:])
