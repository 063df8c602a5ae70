"""Files as released versions wrote them, which later ones must read."""
