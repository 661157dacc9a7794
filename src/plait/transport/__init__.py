"""Child processes that talk to their parent in length-prefixed frames over a socket pair. Importable without torch.

- `ChildProcess`: the controller's side, asyncio.
- `ParentLink`: the child's side, synchronous.
- `Codec`: msgpack encoding of a tagged union of structs.
"""

from plait.transport.child import ChildProcess
from plait.transport.codec import Codec
from plait.transport.parent import ParentLink

__all__ = ["ChildProcess", "Codec", "ParentLink"]
