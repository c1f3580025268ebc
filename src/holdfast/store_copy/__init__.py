"""Moving a store to another engine while its writers go on.

    source ──walk in order of ids──┐
                                   ├─► what differs ──► target, with how far it came, in one commit
    target ──walk in order of ids──┘
                                   └─► nothing differs: in step; counts and hashes are the proof

The first walk is the snapshot, later ones catch up, deletions too. There is no list of what was copied: the
target itself says it, so a kill at any moment costs at most the documents of one commit. Only a walk made
after the writers stopped proves that both stores are the same; that one finishes the copy.
"""

from holdfast.store_copy.copier import copy_store
from holdfast.store_copy.marker import check_target, refuse_unfinished_copy
from holdfast.store_copy.models import CollectionDigest, Copy, CopyResult, Difference, Progress, WalkResult
from holdfast.store_copy.store_names import local_file, name_of
from holdfast.store_copy.walk import count_all, verify_stores

__all__ = [
    "CollectionDigest",
    "Copy",
    "CopyResult",
    "Difference",
    "Progress",
    "WalkResult",
    "check_target",
    "copy_store",
    "count_all",
    "local_file",
    "name_of",
    "refuse_unfinished_copy",
    "verify_stores",
]
