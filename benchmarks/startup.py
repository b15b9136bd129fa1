"""Import time, and the time from a process's start to its first value: one layer's output of phi-mini.

Every start is a process of its own, and the libraries take turns. The first round, which fills the file cache, does not
count.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.cases import CUTAWAY, LENS, NNSIGHT, RAW
from benchmarks.timing import spread

PROMPT = "def add(a, b):"
LAYER = 2

IMPORTS = {
    RAW: "import torch; from transformers import AutoModelForCausalLM, AutoTokenizer",
    CUTAWAY: "import cutaway",
    f"{CUTAWAY}, with the model's class": "from cutaway import StandardizedTransformer",
    NNSIGHT: "from nnsight.modeling.transformers import TransformersModel",
    LENS: "from transformer_lens.model_bridge import TransformerBridge",
}

_LOAD = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
hf = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
"""

# A with-block of nnsight's is read from its source, so that the body must be in a file.
FIRST_VALUES = {
    RAW: _LOAD
    + """
found = []
hf.model.layers[LAYER].register_forward_hook(lambda module, args, output: found.append(output))
with torch.no_grad():
    hf(**tokenizer(PROMPT, return_tensors="pt"))
print(float(found[0].sum()))
""",
    CUTAWAY: """
from cutaway import StandardizedTransformer
model = StandardizedTransformer("phi-mini")
with model.trace(PROMPT):
    stream = model.layers[LAYER].layer_output
print(float(stream.sum()))
""",
    NNSIGHT: """
import torch
from nnsight.modeling.transformers import TransformersModel
model = TransformersModel(FOLDER, task="text-generation", dispatch=True, dtype=torch.float32)
with torch.no_grad(), model.trace(PROMPT) as tracer:
    stream = model.model.layers[LAYER].output.save()
    tracer.stop()
print(float(stream.sum()))
""",
    LENS: _LOAD
    + """
from transformer_lens.model_bridge import TransformerBridge
model = TransformerBridge.boot_transformers("phi-mini", hf_model=hf, tokenizer=tokenizer, dtype=torch.float32)
name = f"blocks.{LAYER}.hook_out"
with torch.no_grad():
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    _, cache = model.run_with_cache(ids, names_filter=name, stop_at_layer=LAYER + 1)
print(float(cache[name].sum()))
""",
}


def starts(libraries: list[str], rounds: int, folder: Path, warmup: int = 1) -> dict[str, Any]:
    """Medians and quartiles in seconds, by library.

    Args:
        libraries: those that count.
        rounds: how often each is started.
        folder: where the programs are written that are started.
        warmup: how many rounds before do not count.
    """
    from cutaway.reference.checkpoint import find_folder

    checkpoint = find_folder("phi-mini")
    folder.mkdir(parents=True, exist_ok=True)
    programs: dict[tuple[str, str], Path] = {}
    for kind, texts in (("import", IMPORTS), ("first value", FIRST_VALUES)):
        for name, text in texts.items():
            if name.split(",")[0] in libraries:
                head = f"FOLDER, PROMPT, LAYER = {str(checkpoint)!r}, {PROMPT!r}, {LAYER}\n"
                program = folder / f"{kind}-{name}.py".replace(" ", "-").replace(",", "")
                program.write_text(head + text)
                programs[kind, name] = program
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in programs}
    values: dict[str, float] = {}
    keys, shuffle = list(programs), random.Random(0)
    for turn in range(rounds + warmup):
        shuffle.shuffle(keys)
        for key in keys:
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-W", "ignore", programs[key]], capture_output=True, text=True, check=True
            )
            if turn >= warmup:
                taken[key].append(time.perf_counter() - began)
            if key[0] == "first value":
                values[key[1]] = float(done.stdout.split()[-1])
    wanted = values[RAW]
    assert all(abs(value - wanted) < 1e-2 for value in values.values()), values
    found: dict[str, Any] = {"import": {}, "first value": {}}
    for (kind, name), seconds in taken.items():
        found[kind][name] = {"median_s": statistics.median(seconds), "quartiles_s": list(spread(seconds))}
    return found
