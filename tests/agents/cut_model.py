"""A model cut down to its first layer: its vocabulary and its template stay, its choice of tokens is worth nothing.

`python cut_model.py MODEL OUT` writes a GGUF file that a real llama.cpp server loads, with a context of 131,072 ids, of
which it processes some thousand a second on one core. It needs the package `gguf`.
"""

import sys
from pathlib import Path
from typing import Any, Final

import gguf

CONTEXT: Final = 131_072
_CHANGED: Final = {"llama.block_count": 1, "llama.context_length": CONTEXT}


def main() -> None:
    """Cut the model that the command line names."""
    model, out = map(Path, sys.argv[1:])
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(out, "llama")
    for name, field in reader.fields.items():
        # The writer says these itself.
        if not name.startswith("GGUF.") and name != "general.architecture":
            _copy(writer, name, field)
    kept = [
        tensor for tensor in reader.tensors if not tensor.name.startswith("blk.") or tensor.name.startswith("blk.0.")
    ]
    for tensor in kept:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy(writer: Any, name: str, field: Any) -> None:
    value = _CHANGED.get(name, field.contents())
    inside = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
    writer.add_key_value(name, value, field.types[0], sub_type=inside)


if __name__ == "__main__":
    main()
