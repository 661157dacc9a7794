"""Groups of linears under the names by which clients ask for them."""

from plait.lora.modules import UNEMBEDDING

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


def target_modules(attention: bool = True, mlp: bool = True, unembedding: bool = True) -> tuple[str, ...]:
    return (ATTENTION if attention else ()) + (MLP if mlp else ()) + ((UNEMBEDDING,) if unembedding else ())
