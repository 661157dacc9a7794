"""Tensors that lie in slices over ranks: written under one sharding, read or sent under another, slice by slice.

- `layout`: which part of which tensor a rank holds. `plan`: which bytes of which shard a rank needs. Both pure.
- `shard_file`, `checkpoint`: shards on disk. `weight_sync`: the same slices between processes. Only the latter needs torch.
- No full tensor is rebuilt anywhere, and every needed byte is read or sent once.
"""
