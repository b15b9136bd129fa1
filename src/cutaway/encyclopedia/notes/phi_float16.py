"""Where float16 ends: attention that multiplies before it scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cutaway.encyclopedia.note import Reported, note
from cutaway.encyclopedia.notes.halves import copy_in_float16, with_large_products

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "In float16, eager attention can run out of numbers",
    figures={
        "product": "largest product of a query and a key, before the scale",
        "enlarged": "the same in the copy, its query and key weights enlarged",
        "eager": "entries of the copy's attention output that are no number, eager attention",
        "sdpa": "the same under sdpa",
        "scores": "largest score that Cutaway serves of the copy under sdpa",
    },
    reported=(
        Reported("product", "1.1×10⁶ at block 29, and above 65,504 at 30 and 31", "phi-2"),
        Reported("product", "8.7×10³", "phi-1.5"),
        Reported("eager", "block 29's output is not finite and every logit is NaN", "phi-2, float16"),
        Reported("sdpa", "none: the likeliest next token is Paris, at 0.94", "phi-2, float16"),
        Reported("eager", "none: Paris at 0.92", "phi-2, bfloat16"),
    ),
)
def float16_under_eager(model: StandardizedTransformer) -> dict[str, Any]:
    """transformers' eager attention forms the product of query and key first and scales it afterwards. float16 ends at
    65,504. {model} reaches {product}, so this note runs a copy in float16 whose query and key weights are enlarged,
    where they need it, until its product is {enlarged}: eager attention then returns numbers that are none, sdpa does
    not. Asked for the interior of a model under sdpa, Cutaway scales the query before the product, and serves
    scores that are finite. If you see NaN from phi-2, this is the likely reason: load it with sdpa or in bfloat16."""
    prompt = "The Eiffel Tower is in the city of"
    product, enlarged, weights = with_large_products(model, prompt)
    counts = {}
    for kernel in ("eager", "sdpa"):
        copy = copy_in_float16(model, weights, kernel)
        outputs = copy.read(prompt, "attention_output").values()
        counts[kernel] = sum(int((~output.isfinite()).sum()) for output in outputs)
    scores = copy.read(prompt, "attention_probabilities", "attention_scores")
    assert enlarged > 65504
    assert counts["eager"] > 0 == counts["sdpa"]
    assert all(value.max().isfinite() and not value.isnan().any() for value in scores.values())
    largest = max(float(value.max()) for value in scores.values())
    return {"product": product, "enlarged": enlarged, **counts, "scores": largest}
