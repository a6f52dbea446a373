"""Which formats there are: by name, and by a model's chat template.

An unknown template is not an error: it gets the generic format, which the preamble then teaches. An unknown name is.
"""

from gateway.errors import ConfigError
from gateway.toolcalls.formats.apertus import APERTUS
from gateway.toolcalls.formats.arrays import APRIEL, HUNYUAN, JAMBA, MINIMAX_M1, NEMOTRON_NANO
from gateway.toolcalls.formats.cohere import COMMAND_R7B
from gateway.toolcalls.formats.deepseek import DEEPSEEK_V3, DEEPSEEK_V31
from gateway.toolcalls.formats.dsml import DEEPSEEK_V4, DEEPSEEK_V32
from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.functionary import FUNCTIONARY_31, FUNCTIONARY_32
from gateway.toolcalls.formats.gemma4 import FUNCTION_GEMMA, GEMMA_4
from gateway.toolcalls.formats.glm import GLM45, GLM47
from gateway.toolcalls.formats.granite import GRANITE_3
from gateway.toolcalls.formats.harmony import HARMONY
from gateway.toolcalls.formats.hermes import GENERIC, HERMES
from gateway.toolcalls.formats.hunyuan import HUNYUAN_3
from gateway.toolcalls.formats.inkling import INKLING
from gateway.toolcalls.formats.k2_horizon import K2_HORIZON
from gateway.toolcalls.formats.kimi import KIMI_K2
from gateway.toolcalls.formats.kimi_k3 import KIMI_K3
from gateway.toolcalls.formats.llama import JSON, LLAMA_3
from gateway.toolcalls.formats.minicpm5 import MINICPM_5
from gateway.toolcalls.formats.minimax import DOTS, MINIMAX_M2, MINIMAX_M3
from gateway.toolcalls.formats.miro import MIRO_THINKER
from gateway.toolcalls.formats.mistral import MISTRAL, MISTRAL_NEMO, MISTRAL_SMALL
from gateway.toolcalls.formats.muse import MUSE_GLIMMER
from gateway.toolcalls.formats.phi import PHI_4_MINI
from gateway.toolcalls.formats.plamo3 import PLAMO_3
from gateway.toolcalls.formats.pythonic import LFM2, OLMO_3, PYTHONIC
from gateway.toolcalls.formats.qwen3_coder import MIMO, QWEN3_CODER, SEED_OSS
from gateway.toolcalls.formats.solar import SOLAR_OPEN
from gateway.toolcalls.formats.step3 import STEP_3
from gateway.toolcalls.formats.wrapped import (
    COMMAND_R_PLUS,
    ERNIE_45,
    GIGACHAT_3,
    GIGACHAT_31,
    GRANITE_20B,
    INTERNLM_2,
    LONGCAT,
    NEMOTRON_MINI,
)

_ALL = (
    APERTUS,
    APRIEL,
    COMMAND_R7B,
    COMMAND_R_PLUS,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DEEPSEEK_V4,
    DOTS,
    ERNIE_45,
    FUNCTIONARY_31,
    FUNCTIONARY_32,
    FUNCTION_GEMMA,
    GEMMA_4,
    GENERIC,
    GIGACHAT_3,
    GIGACHAT_31,
    GLM45,
    GLM47,
    GRANITE_20B,
    GRANITE_3,
    HARMONY,
    HERMES,
    HUNYUAN,
    HUNYUAN_3,
    INKLING,
    INTERNLM_2,
    JAMBA,
    JSON,
    K2_HORIZON,
    KIMI_K2,
    KIMI_K3,
    LFM2,
    LLAMA_3,
    LONGCAT,
    MIMO,
    MINICPM_5,
    MINIMAX_M1,
    MINIMAX_M2,
    MINIMAX_M3,
    MIRO_THINKER,
    MISTRAL,
    MISTRAL_NEMO,
    MISTRAL_SMALL,
    MUSE_GLIMMER,
    NEMOTRON_MINI,
    NEMOTRON_NANO,
    OLMO_3,
    PHI_4_MINI,
    PLAMO_3,
    PYTHONIC,
    QWEN3_CODER,
    SEED_OSS,
    SOLAR_OPEN,
    STEP_3,
)
_FORMATS = {fmt.name: fmt for fmt in _ALL}


class UnknownFormat(ConfigError):
    """No format has the name `name`."""

    def __init__(self, name: str) -> None:
        valid = ", ".join(map(repr, sorted(_FORMATS)))
        super().__init__(f"no tool-call format is named {name!r}; use one of {valid}")
        self.name = name


def format_names() -> tuple[str, ...]:
    """Return the names that `format_named` knows, sorted."""
    return tuple(sorted(_FORMATS))


def format_named(name: str) -> Format:
    """Return a format by its name. Raises `UnknownFormat`, whose message lists the valid ones."""
    try:
        return _FORMATS[name]
    except KeyError:
        raise UnknownFormat(name) from None


def format_for_template(jinja_text: str) -> str:
    """Return the name of a chat template's format; "generic" where it is unknown or does not support tools."""
    # Inside a Jinja string the quotes of the JSON are escaped.
    text = jinja_text.replace('\\"', '"')
    for fmt in _FORMATS.values():
        known = bool(fmt.template_has) and all(mark in text for mark in fmt.template_has)
        known = known or any(mark in text for mark in fmt.template_or)
        if known and not any(mark in text for mark in fmt.template_lacks):
            return fmt.name
    return GENERIC.name
