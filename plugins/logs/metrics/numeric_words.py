"""What is said of numbers that go wrong, and what to do."""

from __future__ import annotations

from ascend_tui.plugin import Message

LOSS_BAD = Message("loss is {value}")
LOSS_BAD_IN = Message("loss is {value}, and of its parts {parts}")
BARE_BAD = Message("a number printed beside its step is {value}")
PART_BAD = Message("{parts} not finite ({value})")
PART_BAD_TOTAL = Message("{parts} not finite ({value}), the loss itself is still finite")
OTHER_BAD = Message("{name} is {value}")
NORM_BAD = Message("gradient norm is {value}, the loss is still finite")
NORM_BAD_ALONE = Message("gradient norm is {value}")
NORM_BAD_MISSING = Message("gradient norm is {value}, and the loss is missing in this line")
ZERO = Message("loss is exactly 0.0 with a {value} gradient norm: a NaN logged as zero")
MISSING = Message("loss missing: this line has none, those before had one")
EXPLODES = Message("loss explodes: {before} → {value}")
PART_EXPLODES = Message("{part} explodes: {before} → {value}")
CLIMBS = Message("loss climbs")

STILL = Message("gradient overflow, and the optimizer still updates")
SEARCH = Message("gradient overflow: skipped, loss scale {scale} (normal search)")
SEARCH_BLIND = Message("gradient overflow: skipped (normal search)")
FALLS = Message("loss scale collapses: {before} → {scale} without recovery")
BELOW_ONE = Message("loss scale fell below 1, to {scale}")
NOTHING = Message("loss scale is {scale}: no step can be right any more")
MINIMUM = Message("loss scale is at its minimum and gradients still overflow")

WHY_BACKWARD = Message(
    "the loss is still finite: it arose in backward or in clipping at this step, not in forward"
)
WHY_ZERO = Message(
    "the Trainer of transformers logs a NaN or Inf loss as 0 (logging_nan_inf_filter); a real loss is hardly"
    " ever exactly 0 with a gradient norm of NaN"
)
WHY_MISSING = Message(
    "Megatron leaves a loss that is NaN out of its line while its own counters stay 0; that is likely here,"
    " the line itself does not say it"
)
WHY_BARE = Message("two columns without a word: by their order, a step and a loss")
WHY_FIRST_PART = Message("{part} is the first part in the line that is not finite")
WHY_STILL = Message("a skipped step would keep the weights; here bad gradients go into them each time")
WHY_CONSTANT = Message("the loss scale stays {scale}: nothing is being searched")
WHY_LOW = Message(
    "below 1 the scale makes gradients smaller than they are, and they still overflow: it is not the cause"
)
WHY_NEVER = Message("{n} messages tell of an overflow, and the scale was not seen to rise again")
AFTER = Message("the last step printed before it is {step}")
WHY_NORMAL = Message("a scaler finds the largest scale that fits by such a skip now and then")

THEN_LOSS = Message("the loss itself is not finite from step {step} on")
THEN_LOSS_ANY = Message("later the loss itself is not finite")
BEFORE_VALUE = Message("the last finite value before was {value}")
EXPLODED_FIRST = Message("it exploded first: {value} at step {step}")
EXPLODED_FIRST_ANY = Message("it exploded first: {value} just before")
SCALE_THEN = Message("the loss scale is {scale} in this line")
OVERFLOWS = Message("overflows told before it: {n}")
EPOCH = Message("at epoch {epoch}")

ADVISE_FORWARD = Message("find the first module whose output is not finite: watch modules, then operators")
ADVISE_PART = Message(
    "look at what {part} is made of: a log or a division of 0, an empty batch, a target out of range"
)
ADVISE_BACKWARD = Message("watch gradients: the first parameter whose gradient is not finite names the place")
ADVISE_STOP = Message(
    "go back to the last checkpoint from before this step: weights that took it do not recover"
)
ADVISE_FILTER = Message("set logging_nan_inf_filter=False to see the loss as it is")
ADVISE_RATE = Message("try a lower learning rate or a longer warm-up, and look at the batch of this step")
ADVISE_SKIP = Message(
    "have the step skipped on overflow and let the loss scale fall; a fixed scale cannot adapt"
)
ADVISE_PRECISION = Message("bfloat16 needs no scale; in float16, keep what overflows in float32")
ADVISE_NOT_SCALE = Message(
    "look for the module or the part of the loss that makes NaN or Inf, not at the scale"
)
