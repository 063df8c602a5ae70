"""Texts of messages: plain ones, odd ones, and texts that spell special tokens."""

from __future__ import annotations

from ...seams.seam import LONGER, OTHER, SHORT
from ..toys import TOYS

PLAIN_WORDS = ("a", "b", "ab", "ba", "aab", "hello", "a b")
TRICKY_WORDS = (
    "be quick /no_think",
    "",
    " ",
    "\n",
    "a\n",
    "\na",
    " a ",
    "None",
    "{}",
    "ünï✓",
    "🙂",
    "\u2028",
    "[0]",
    "abababab",
)
STAND_INS = (SHORT, f"What rhymes with {SHORT}", LONGER, SHORT.lower(), OTHER, "So.", "Hello.", "Be brief.")
"""The stand-in texts of the kernel's questions; real messages may have them too."""
SPECIALS = tuple(sorted({special for toy in TOYS for special in toy.tokenizer.specials}))
INJECTIONS = tuple(
    f"{before}{special}{after}" for special in SPECIALS for before, after in (("", ""), ("a", "b"))
)
"""Texts that spell a special token of some family: the tokenizer makes the real thing of them."""
WORDS = PLAIN_WORDS * 6 + TRICKY_WORDS * 2 + STAND_INS + INJECTIONS[::3]
