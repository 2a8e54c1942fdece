"""What a page's text looks like: the page is asked for the boxes of its words."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

_BOXES = """() => {
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode;
        const parent = text.parentElement;
        if (!text.data.trim() || !parent.checkVisibility({ visibilityProperty: true })) continue;
        if (parent.closest('script, style, title, clipPath, option')) continue;
        const range = document.createRange();
        range.selectNodeContents(text);
        for (const rect of range.getClientRects()) {
            const box = { left: rect.left, top: rect.top, right: rect.right, bottom: rect.bottom };
            const whole = { ...box };
            let isScrolled = false;
            for (let each = parent; each; each = each.parentElement) {
                const { overflowX, overflowY } = getComputedStyle(each);
                const isOpen = overflowX === 'visible' && overflowY === 'visible';
                if (isOpen && each.tagName !== 'svg') continue;
                const clip = each.getBoundingClientRect();
                isScrolled ||= each.scrollWidth > each.clientWidth && overflowX === 'auto';
                isScrolled ||= each.scrollHeight > each.clientHeight && overflowY === 'auto';
                box.left = Math.max(box.left, clip.left);
                box.right = Math.min(box.right, clip.right);
                box.top = Math.max(box.top, clip.top);
                box.bottom = Math.min(box.bottom, clip.bottom);
            }
            const isCut = whole.left < box.left - 1 || whole.right > box.right + 1
                || whole.top < box.top - 3 || whole.bottom > box.bottom + 3;
            if (box.left < box.right && box.top < box.bottom || !isScrolled) {
                found.push({ text: text.data.trim(), ...box, isCut: isCut && !isScrolled });
            }
        }
    }
    return found;
}"""

SLACK = 2
"""Pixels by which boxes may meet: a line's box is higher than its letters."""

Box = dict[str, Any]


def text_boxes(page: Page) -> list[Box]:
    """Every visible piece of text in one line: its `text`, where it is, and whether it `isCut` by
    something that does not scroll."""
    boxes: list[Box] = page.evaluate(_BOXES)
    return boxes


def overlapping(boxes: list[Box]) -> list[tuple[str, str]]:
    """Texts that cover each other."""
    ordered = sorted(boxes, key=lambda box: box["top"])
    pairs = []
    for place, one in enumerate(ordered):
        for other in ordered[place + 1 :]:
            if other["top"] + SLACK >= one["bottom"] - SLACK:
                break
            if (
                one["left"] + SLACK < other["right"] - SLACK
                and other["left"] + SLACK < one["right"] - SLACK
                and one["top"] + SLACK < other["bottom"] - SLACK
            ):
                pairs.append((one["text"], other["text"]))
    return pairs


def cut(boxes: list[Box]) -> list[str]:
    """Texts of which a part cannot be seen."""
    return [box["text"] for box in boxes if box["isCut"]]
