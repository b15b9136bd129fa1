"""Real `peft`, `bitsandbytes` and `optimum-quanto`, as `make test-wrapped` installs them, and torch's own DDP: what is
read and edited in the model inside is what raw hooks on it see and do."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from cutaway import StandardizedTransformer
from cutaway.errors import GradientError, LoadError, UnavailableValueError
from tests.families import models, native

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # peft asks for it
]
for_peft = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="no peft: make test-wrapped")
for_bits = pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="no bitsandbytes: likewise")
for_quanto = pytest.mark.skipif(importlib.util.find_spec("optimum") is None, reason="no optimum-quanto: likewise")

KINDS = ("phi", "llama")
IDS = models.IDS
INPUTS = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
MLP = "layers.1.mlp.mlp_output"
NAMES = (
    "token_embeddings",
    "layer_input",
    "attention_norm_output",
    *native.INTERIOR[:3],
    *native.INTERIOR[5:],
    "attention_premix",
    "attention_output",
    "mlp_input",
    "mlp_activation",
    "mlp_neurons",
    "mlp_output",
    "layer_output",
    "final_norm_output",
    "lm_head_output",
    "logits",
)
"""What is compared under every kernel; under eager attention the scores and the pattern too."""


def half_more(value: Tensor) -> Tensor:
    """An edit whose effect neither a softmax nor a norm takes back, and a rounding to few bits keeps."""
    return value * torch.linspace(1, 2, value.shape[-1], dtype=value.dtype)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """phi-mini, and a tiny llama that is wide enough for blocks of 64 weights."""
    llama = tmp_path_factory.mktemp("llama")
    models.build(models.llama(hidden_size=64, intermediate_size=128, pad_token_id=None)).save_pretrained(llama)
    return {"phi": Path(str(files("cutaway") / "data" / "phi-mini")), "llama": llama}


Load = Callable[..., Any]


@pytest.fixture
def load(folders: dict[str, Path]) -> Load:
    """A plain model in float32, by kind and by what `from_pretrained` takes."""

    def made(kind: str, attention: str = "eager", **more: Any) -> Any:
        more = {"dtype": torch.float32, "attn_implementation": attention, **more}
        return AutoModelForCausalLM.from_pretrained(folders[kind], **more).eval()

    return made


def agree(hf: Any, kind: str, model: StandardizedTransformer, names: tuple[str, ...] = (), layer: int = 1) -> None:
    """Every value, and every edit by function and by an edited model, is that of raw hooks, bit for bit."""
    with torch.no_grad():
        plain = hf(**INPUTS).logits
    steps = native.STEPS if hf.config._attn_implementation == "eager" else ()
    for name in names or (*NAMES, *steps):
        path = native.path_of(name, layer)
        assert torch.equal(model.read(IDS, path)[path], native.value(hf, kind, INPUTS, name, layer)), name
        expected = native.edited_logits(hf, kind, INPUTS, name, layer, half_more)
        assert not torch.equal(expected, plain), name
        with model.hooks({path: half_more}):
            assert torch.equal(model.read(IDS, "logits")["logits"], expected), name
        assert torch.equal(model.edited({path: half_more}).read(IDS, "logits")["logits"], expected), name
    with torch.no_grad():
        assert torch.equal(hf(**INPUTS).logits, plain)


def with_adapters(hf: Any, *names: str, **more: Any) -> Any:
    """A `PeftModel` of a model with random adapters in its layers, the first of them active."""
    import peft

    config = peft.LoraConfig(**{"r": 4, "target_modules": "all-linear", "init_lora_weights": False, **more})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        wrapped = peft.get_peft_model(hf, config, adapter_name=names[0])
        for name in names[1:]:
            wrapped.add_adapter(name, config)
    return wrapped.eval()


@for_peft
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_active_switched_disabled_and_merged(kind: str, attention: str, load: Load) -> None:
    hf = load(kind, attention)
    with torch.no_grad():
        bare = hf(**INPUTS).logits
    wrapped = with_adapters(hf, "one", "two")
    model = StandardizedTransformer(wrapped)
    assert model.hf is hf
    seen = [bare]

    def agrees() -> None:
        agree(hf, kind, model)
        with torch.no_grad():
            found = wrapped(**INPUTS).logits
        assert torch.equal(model.read(IDS, "logits")["logits"], found)
        seen.append(found)

    agrees()
    wrapped.set_adapter("two")
    agrees()
    wrapped.base_model.set_adapter(["one", "two"])
    agrees()
    assert len({float(logits.sum()) for logits in seen}) == 4  # each of these is another model
    wrapped.merge_adapter()
    agrees()
    wrapped.unmerge_adapter()
    with wrapped.disable_adapter():
        agree(hf, kind, model, ("mlp_output", "attention_queries"))
        torch.testing.assert_close(model.read(IDS, "logits")["logits"], bare, rtol=1e-4, atol=1e-4)
    unloaded = wrapped.merge_and_unload()
    agree(unloaded, kind, StandardizedTransformer(unloaded), ("mlp_neurons", "attention_premix", "layer_output"))
    with pytest.raises(UnavailableValueError, match="exchanged after the model was opened: then open it again"):
        model.read(IDS, "mlp_neurons")


@for_peft
@pytest.mark.parametrize(
    "more",
    [
        {"use_dora": True},
        {"modules_to_save": ["lm_head", "embed_tokens"]},
        {"target_modules": ["embed_tokens", "q_proj"]},
        {"target_modules": ["lm_head"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["input_layernorm"]},
        {"target_modules": ["q_proj"], "target_parameters": ["mlp.down_proj.weight"]},
        {"layers_to_transform": [1], "target_modules": ["q_proj", "down_proj"]},
    ],
    ids=str,
)
def test_what_adapters_reach(more: dict[str, Any], load: Load) -> None:
    hf = load("llama")
    agree(hf, "llama", StandardizedTransformer(with_adapters(hf, "one", **more)))


@for_peft
def test_adapters_have_names_of_their_own_and_gradients(load: Load) -> None:
    hf = load("llama")
    wrapped = with_adapters(hf, "one", "two")
    model = StandardizedTransformer(wrapped)
    inner = hf.model.layers[1].mlp.down_proj.lora_B.one
    path = "layers.1.mlp.down_proj.lora_B.one.output"
    seen: list[Tensor] = []
    handle = inner.register_forward_hook(lambda _m, _args, output: seen.append(output))
    wrapped(**INPUTS).logits.sum().backward()
    handle.remove()
    assert torch.equal(model.read(IDS, path)[path], seen[0])
    expected = {name: p.grad for name, p in wrapped.named_parameters() if p.grad is not None}
    assert expected
    wrapped.zero_grad(set_to_none=True)
    with model.trace(IDS, grad=True):
        stream = model.layers[1].layer_output
        model.logits.sum().backward()
    assert stream.grad is not None
    assert all(torch.equal(p.grad, expected[name]) for name, p in wrapped.named_parameters() if p.grad is not None)
    with pytest.raises(UnavailableValueError, match=r"merge_and_unload\(\)"):
        model.layers[1].self_attn.W_Q


@for_peft
@pytest.mark.parametrize("kind", KINDS)
def test_an_edited_model_with_adapters(kind: str, load: Load) -> None:
    hf = load(kind)
    wrapped = with_adapters(hf, "one", "two")
    edited = StandardizedTransformer(wrapped).edited({MLP: half_more})
    for adapter in ("one", "two"):
        wrapped.set_adapter(adapter)
        expected = native.edited_logits(hf, kind, INPUTS, "mlp_output", 1, half_more)
        assert torch.equal(edited.read(IDS, "logits")["logits"], expected)
        with torch.no_grad():
            assert torch.equal(edited.hf(**INPUTS).logits, expected)
            assert not torch.equal(wrapped(**INPUTS).logits, expected)
        told = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
        handle = hf.model.layers[1].mlp.register_forward_hook(lambda _m, _args, output: half_more(output))
        tokens = wrapped.generate(**INPUTS, **told)
        handle.remove()
        assert torch.equal(edited.generate(IDS, **told).output, tokens)


@for_peft
def test_vectors_before_the_prompt_are_refused(load: Load) -> None:
    import peft

    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    with pytest.raises(LoadError, match=r"vectors of its own before each prompt.*`get_base_model\(\)`"):
        StandardizedTransformer(peft.get_peft_model(load("llama"), config))


def bits(how: str) -> Any:
    from transformers import BitsAndBytesConfig

    if how == "8":
        return BitsAndBytesConfig(load_in_8bit=True)
    nested = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True} if how == "4 nested" else {}
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32, **nested)


BITS = ("8", "4", "4 nested")


@for_bits
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("how", BITS)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_8_and_4_bits(kind: str, how: str, attention: str, load: Load, folders: dict[str, Path]) -> None:
    hf = load(kind, attention, quantization_config=bits(how))
    model = StandardizedTransformer(hf)
    agree(hf, kind, model)
    options = {"quantization_config": bits(how), "dtype": "float32", "attn_implementation": attention}
    for dispatch in (True, False):
        opened = StandardizedTransformer(folders[kind], dispatch=dispatch, **options)  # type: ignore[arg-type]
        assert torch.equal(opened.read(IDS, "logits")["logits"], model.read(IDS, "logits")["logits"])
    told = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(IDS, **told).output, hf.generate(**INPUTS, **told))
    with pytest.raises(UnavailableValueError, match="which does more than multiply by one matrix"):
        model.layers[1].self_attn.W_Q


@for_bits
@pytest.mark.parametrize("how", BITS)
@pytest.mark.parametrize("kind", KINDS)
def test_opening_leaves_weights_of_few_bits_as_they_were(kind: str, how: str, load: Load) -> None:
    """bitsandbytes packs 4-bit weights on some CPUs in the first pass without gradients, and has none from then on."""

    def gradient(hf: Any) -> Tensor:
        seen: list[Tensor] = []

        def keep(_module: nn.Module, _args: Any, output: Tensor) -> None:
            output.retain_grad()
            seen.append(output)

        handle = hf.model.layers[1].register_forward_hook(keep)
        hf(**INPUTS).logits.sum().backward()
        handle.remove()
        assert seen[0].grad is not None
        return seen[0].grad

    expected = gradient(load(kind, quantization_config=bits(how)))
    hf = load(kind, quantization_config=bits(how))
    weight = hf.model.layers[1].self_attn.q_proj.weight
    data = weight.data_ptr()
    model = StandardizedTransformer(hf)
    model.check()
    if how != "8":
        assert weight.data_ptr() == data
    assert torch.equal(gradient(hf), expected)
    with model.trace(IDS, grad=True):
        stream = model.layers[1].layer_output
        model.logits.sum().backward()
    assert torch.equal(stream.grad, expected)
    model.read(IDS, "logits")
    state = getattr(weight, "quant_state", None)
    if getattr(state, "packing_format_for_cpu", False):
        with pytest.raises(GradientError, match=r"bitsandbytes packed the 4-bit weights of `model\.layers\.0"):
            model.trace(IDS, grad=True).__enter__()


@for_peft
@for_bits
def test_adapters_over_4_bits(load: Load) -> None:
    hf = load("llama", quantization_config=bits("4"))
    agree(hf, "llama", StandardizedTransformer(with_adapters(hf, "one")))


@for_quanto
@pytest.mark.parametrize("how", ["int8", "int4"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_in_few_bits_by_quanto(kind: str, how: str, load: Load) -> None:
    from transformers import QuantoConfig

    hf = load(kind, quantization_config=QuantoConfig(weights=how))
    agree(hf, kind, StandardizedTransformer(hf), ("attention_queries", "mlp_neurons", "mlp_output", "logits"))


@contextlib.contextmanager
def one_process(store: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed")
@pytest.mark.parametrize("kind", KINDS)
def test_data_parallel_of_one_process(kind: str, load: Load, tmp_path: Path) -> None:
    hf = load(kind)
    with one_process(tmp_path / "store"):
        outer = nn.parallel.DistributedDataParallel(hf)
        model = StandardizedTransformer(outer)
        assert model.hf is hf
        agree(hf, kind, model)
        expected = native.edited_logits(hf, kind, INPUTS, "mlp_output", 1, half_more)
        with model.hooks({MLP: half_more}), torch.no_grad():
            assert torch.equal(outer(**INPUTS).logits, expected)

        def gradients(train: Callable[[], Any]) -> dict[str, Tensor]:
            outer.zero_grad(set_to_none=True)
            train()
            return {name: p.grad for name, p in hf.named_parameters() if p.grad is not None}

        plain = gradients(lambda: outer(**INPUTS).logits.sum().backward())

        def traced() -> None:
            with model.trace(IDS, grad=True):
                model.logits.sum().backward()

        handle = hf.model.layers[1].mlp.register_forward_hook(lambda _m, _args, output: half_more(output))
        by_hand = gradients(lambda: outer(**INPUTS).logits.sum().backward())
        handle.remove()

        def trained() -> None:
            with model.hooks({MLP: half_more}):
                outer(**INPUTS).logits.sum().backward()

        for found, wanted in ((gradients(traced), plain), (gradients(trained), by_hand)):
            assert found.keys() == wanted.keys()
            assert all(torch.equal(found[name], wanted[name]) for name in wanted)
