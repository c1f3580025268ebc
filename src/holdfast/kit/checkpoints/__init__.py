"""Checkpoints: the state to resume from, of which exactly one is the latest."""

from holdfast.kit.checkpoints.checkpoints import Checkpoints
from holdfast.kit.checkpoints.models import CHECKPOINT_INDEXES, CheckpointDocument, CheckpointFields

__all__ = ["CHECKPOINT_INDEXES", "CheckpointDocument", "CheckpointFields", "Checkpoints"]
