"""The model of this suite as a user of PyTorch writes it, eager or compiled: torch_step.py SHAPE eager|compile.

Runs in an environment with PyTorch alone. QK-norm, z-loss, tied head and learned positions as in `repro.diloco.model`;
fused AdamW, clipping, and the library's attention.
"""

import sys

import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from repro.commands.peers import serve as at


class Block(nn.Module):
    """One pre-norm layer."""

    def __init__(self, shape: at.Shape) -> None:
        super().__init__()
        d, head = shape.width, shape.width // shape.heads
        self.heads = shape.heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
        self.query_norm, self.key_norm = nn.LayerNorm(head, bias=False), nn.LayerNorm(head, bias=False)
        self.qkv, self.output = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, S, d] to [B, S, d]."""
        qkv = self.qkv(self.attention_norm(x)).chunk(3, -1)
        q, k, v = (part.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for part in qkv)
        y = F.scaled_dot_product_attention(self.query_norm(q), self.key_norm(k), v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Decoder(nn.Module):
    """Tokens [B, S + 1] to (training loss, mean negative log-likelihood)."""

    def __init__(self, shape: at.Shape) -> None:
        super().__init__()
        scale = shape.width**-0.5
        self.tokens = nn.Parameter(torch.randn(shape.vocab, shape.width) * scale)
        self.positions = nn.Parameter(torch.randn(at.SEQUENCE, shape.width) * scale)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.final_norm = nn.LayerNorm(shape.width, bias=False)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss with the z-loss, and without."""
        x = F.embedding(tokens[:, :-1], self.tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        logits = self.final_norm(x) @ self.tokens.T
        log_z = torch.logsumexp(logits, -1)
        nll = (log_z - logits.gather(-1, tokens[:, 1:, None])[..., 0]).mean()
        return nll + at.Z_LOSS * (log_z * log_z).mean(), nll


def main() -> None:
    """Serve one shape."""
    at.keep_to_one_core()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape, how = at.SHAPES[sys.argv[1]], sys.argv[2]
    model = Decoder(shape)
    betas = (at.BETA1, at.BETA2)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=at.RATE, betas=betas, eps=at.EPSILON, weight_decay=at.DECAY, fused=True
    )
    forward = torch.compile(model) if how == "compile" else model
    tokens = torch.randint(0, shape.vocab, (shape.batch, at.SEQUENCE + 1))

    def steps(count: int) -> float:
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            loss, nll = forward(tokens)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), at.CLIP, foreach=True)
            optimizer.step()
        return float(nll.detach())

    count = sum(p.numel() for p in model.parameters())
    at.serve(f"PyTorch {how}", count, torch.__version__, steps)


if __name__ == "__main__":
    main()
