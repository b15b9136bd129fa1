"""Phi's checkpoints, whose configs ship with the package; its notes run on the built-in one."""

from cutaway.encyclopedia.published.checkpoint import Checkpoint, Published

PHI = Published(
    title="Phi",
    checkpoints=(Checkpoint("microsoft/phi-2"), Checkpoint("microsoft/phi-1_5"), Checkpoint("microsoft/phi-1")),
    specimen=None,
    model_type="phi",
)
