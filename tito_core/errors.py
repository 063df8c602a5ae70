"""Errors of the kernel: one class for each party at fault.

`InputError` is the caller's mistake. `TemplateRefused` is a chat template that rejects messages; only a
`tokenize_fn` raises it. "Cannot be stitched" is not an error: it is the value `Refusal` (see `refusal.py`).
"""


class TitoError(Exception):
    """Base class of every error that this project raises."""


class InputError(TitoError, ValueError):
    """The caller passed something invalid. The message names the input and says what to do."""


class TokenizeError(TitoError):
    """A `tokenize_fn` returned something other than token ids."""


class TemplateRefused(TitoError):  # noqa: N818  # not a failure: the kernel turns it into a Refusal
    """The chat template itself rejects these messages.

    A `tokenize_fn` raises this for a template's own refusal only: `raise_exception`, a type that the
    template cannot render, a limit that it exceeded. The kernel turns it into a `Refusal`. Every other
    exception, a lost connection above all, passes through the kernel unchanged, so that an outage never
    becomes "cannot stitch".
    """
