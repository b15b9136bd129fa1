"""What each family's page is made from: its title, its published checkpoints, and the model on which its notes run.

Phi's configs ship with the package as files. Those of the other families are built here in code, under the hub ids of
the checkpoints that have them, so that nothing is downloaded.
"""

from cutaway.encyclopedia.published.bloom import BLOOM
from cutaway.encyclopedia.published.checkpoint import Checkpoint, Published
from cutaway.encyclopedia.published.deepseek_v3 import DEEPSEEK_V3
from cutaway.encyclopedia.published.falcon import FALCON
from cutaway.encyclopedia.published.gemma2 import GEMMA2
from cutaway.encyclopedia.published.gemma3 import GEMMA3
from cutaway.encyclopedia.published.gpt2 import GPT2
from cutaway.encyclopedia.published.gpt_neox import GPT_NEOX
from cutaway.encyclopedia.published.gpt_oss import GPT_OSS
from cutaway.encyclopedia.published.gptj import GPTJ
from cutaway.encyclopedia.published.granite import GRANITE
from cutaway.encyclopedia.published.llama import LLAMA
from cutaway.encyclopedia.published.mamba2 import MAMBA2
from cutaway.encyclopedia.published.mistral import MISTRAL
from cutaway.encyclopedia.published.mixtral import MIXTRAL
from cutaway.encyclopedia.published.olmo2 import OLMO2
from cutaway.encyclopedia.published.opt import OPT
from cutaway.encyclopedia.published.phi import PHI
from cutaway.encyclopedia.published.phi3 import PHI3
from cutaway.encyclopedia.published.qwen2 import QWEN2
from cutaway.encyclopedia.published.qwen3 import QWEN3
from cutaway.encyclopedia.published.qwen3_moe import QWEN3_MOE
from cutaway.encyclopedia.published.qwen3_next import QWEN3_NEXT
from cutaway.encyclopedia.published.smollm3 import SMOLLM3
from cutaway.encyclopedia.published.stablelm import STABLELM

PUBLISHED: dict[str, Published] = {
    "phi": PHI,
    "llama": LLAMA,
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "mistral": MISTRAL,
    "mixtral": MIXTRAL,
    "qwen3_moe": QWEN3_MOE,
    "gpt_oss": GPT_OSS,
    "deepseek_v3": DEEPSEEK_V3,
    "mamba2": MAMBA2,
    "qwen3_next": QWEN3_NEXT,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "olmo2": OLMO2,
    "granite": GRANITE,
    "smollm3": SMOLLM3,
    "phi3": PHI3,
    "stablelm": STABLELM,
    "falcon": FALCON,
    "bloom": BLOOM,
    "opt": OPT,
    "gptj": GPTJ,
}
"""By family, in the order of the families."""

__all__ = ["PUBLISHED", "Checkpoint", "Published"]
