"""Reports as JSON."""

from __future__ import annotations

from typing import Any

import attrs

from .report import Divergence, Finding, LintReport, Look, Token


def data(report: LintReport) -> dict[str, Any]:
    """Return a report as plain data."""
    return {
        "path": report.path,
        "template": report.template,
        "error": report.error,
        "notes": list(report.notes),
        "suffix": [token.id for token in report.suffix],
        "suffix_text": "".join(token.text for token in report.suffix),
        "stop_ids": [token.id for token, _ in report.stops],
        "stops": [
            {"id": token.id, "text": token.text, "opens_next_role": opens} for token, opens in report.stops
        ],
        "renderings": [_rendering(look) for look in report.looks],
        "cases": [_case(look, finding) for look in report.looks for finding in look.findings],
        "advice": list(report.advice),
    }


def _rendering(look: Look) -> dict[str, Any]:
    return {
        "label": look.rendering.label,
        "tools": look.rendering.tools,
        "args": dict(look.rendering.args),
        "facts": {**look.facts, "follows": list(look.facts["follows"])},
        "seams": [
            {
                "role": seam.role,
                "parts": [{"name": part.name, "tokens": _tokens(part.tokens)} for part in seam.parts],
            }
            for seam in look.seams
        ],
        "renders": look.renders,
        "seconds": round(look.seconds, 3),
    }


def _case(look: Look, found: Finding) -> dict[str, Any]:
    return {
        "rendering": look.rendering.label,
        "shape": list(found.shape),
        "after": found.after,
        "kind": attrs.asdict(found.kind),
        "truncated": found.cut,
        "verdict": found.verdict.value,
        "history_rewritten": found.history_rewritten,
        "reason": found.reason or None,
        "detail": found.detail,
        "mode": found.mode or None,
        "renders": found.renders,
        "first_divergence": None if found.divergence is None else _divergence(found.divergence),
    }


def _divergence(where: Divergence) -> dict[str, Any]:
    return {
        "at": where.at,
        "in_prompt": where.in_prompt,
        "before": _tokens(where.before),
        "used": _tokens(where.used),
        "rendered": _tokens(where.rendered),
        "dropped": where.dropped,
        "added": where.added,
    }


def _tokens(tokens: tuple[Token, ...]) -> list[dict[str, Any]]:
    return [{"id": token.id, "text": token.text} for token in tokens]
