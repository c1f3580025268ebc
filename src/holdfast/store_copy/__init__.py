"""Copies a store to another engine while its writers go on.

    source ──scan in id order──┐
                               ├─► differences ──► target, with the position, in one commit
    target ──scan in id order──┘
                               └─► no difference: in sync; counts and hashes are the proof

The first walk is the snapshot, later ones catch up, deletions included. There is no list of what was copied:
the target itself shows it, so a kill at any moment costs at most the documents of one commit. Only a walk
made after the writers stopped proves that both stores are equal; that one finishes the copy.
"""

from holdfast.store_copy.copier import copy_store
from holdfast.store_copy.marker import check_target, refuse_unfinished_copy
from holdfast.store_copy.models import Copy, CopyResult, Difference, Progress, WalkResult
from holdfast.store_copy.store_names import local_file, name_of
from holdfast.store_copy.walk import count_all, verify_stores

__all__ = [
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
