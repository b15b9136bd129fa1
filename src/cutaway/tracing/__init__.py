"""The engine: attach a site of a running model, and pause and resume its forward pass.

Everything rests on one primitive, `attach(module, moment, callback, answers)`: when the module's call reaches the
moment and `answers()` is true, the callback is given what passes there and may return something else to pass on. A
`ForwardPass` uses it to pause: its callback switches back to the body of the user's with-block and returns when the
body asks for the next value.
"""

from cutaway.tracing.attach import Attachment, attach, put_on, remove_all
from cutaway.tracing.compiled import AsWritten
from cutaway.tracing.forward_pass import Event, ForwardPass, Stop
from cutaway.tracing.twin import meta_twin

__all__ = ["AsWritten", "Attachment", "Event", "ForwardPass", "Stop", "attach", "meta_twin", "put_on", "remove_all"]
