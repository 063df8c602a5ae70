"""What can go wrong, split by whose fault it is.

A caller's mistake is an `InputError`. A chat template that will not render these messages is a
`TemplateRefused`, which only a `tokenize_fn` raises. "Cannot be stitched" is no error at all: it is a
`Refusal`, a value (see `refusal.py`).
"""


class TitoError(Exception):
    """The root of every error that this project raises."""


class InputError(TitoError, ValueError):
    """A caller's mistake. The message names the input and says what to do."""


class TokenizeError(TitoError):
    """A `tokenize_fn` answered with something other than token ids."""


class TemplateRefused(TitoError):  # noqa: N818  # a refusal, which the kernel turns into a value
    """The chat template itself rejects these messages.

    A `tokenize_fn` raises this and nothing else for a template's own refusal (`raise_exception`, a type
    it cannot render, a limit it ran into). The kernel turns it into a refusal. Every other exception, a
    lost connection above all, goes through the kernel untouched, so that an outage never becomes "cannot
    stitch".
    """
