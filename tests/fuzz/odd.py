"""Makes odd values, and damages values, texts, trees and bytes, all drawn from a `Random`."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    *("", " ", "0", "-1", "1", "nan", "inf", "1e999", "64GB", "-5ms", "1h", "400G", "10%", "off"),
    *("true", "null", "~", "{}", "[]", "a", "srv1-1", "srv1-1:2", "rtsw1:ctsw1", "*", "..", "/"),
    *("é", "\u202e", "\ufeff", "\ud7ff", "\x1b[31m", "a" * 5000, "-", "--", "%s", "{0}", "$HOME"),
    *(0, 1, -1, 2, 3, 8, 255, 65_536, 2**31, 2**32, 2**63, 2**64, 10**40, -(10**40)),
    *(0.0, -0.0, 0.5, 1e-300, 1e308, float("inf"), float("nan")),
    *(True, False, None),
)
LIMITS = (
    "1000000000",
    "99999999999GB",
    "600s",
    "1000h",
    "2147483647",
    "64TB",
    "1ns",
    "1e9",
    "1e18",
)
WORDS = ("../x.yaml", "/dev/null", "/dev/zero", "/proc/self/mem", "/", "/etc", "nothere", ".")


def value(draw: Random) -> Any:
    """A scalar, or a small list or mapping of them."""
    form = draw.random()
    if form < 0.75:
        return draw.choice((*VALUES, *LIMITS))
    if form < 0.85:
        return [draw.choice(VALUES) for _ in range(draw.randrange(4))]
    if form < 0.95:
        return {str(draw.choice(VALUES)): draw.choice(VALUES) for _ in range(draw.randrange(3))}
    nested: Any = draw.choice(VALUES)
    for _ in range(draw.choice((3, 30, 300))):
        nested = [nested] if draw.random() < 0.5 else {"a": nested}
    return nested


def word(draw: Random) -> str:
    """A word of a command line."""
    text = str(draw.choice((*VALUES, *LIMITS, *WORDS)))
    return text.replace("\0", "")


def damaged_tree(tree: Any, draw: Random) -> Any:
    """A tree of mappings, lists and scalars with a few places changed, removed or repeated."""
    tree = copy.deepcopy(tree)
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 6))):
        places = list(_places(tree))
        if not places:
            return value(draw)
        holder, key = draw.choice(places)
        match draw.randrange(8):
            case 0 if isinstance(holder, list):
                holder *= 2
            case 1:
                del holder[key]
            case 2 if isinstance(holder, dict):
                holder[str(draw.choice(VALUES))] = holder.pop(key)
            case 3 if isinstance(holder, dict):
                other_holder, other = draw.choice(places)
                if other_holder is not holder or other in holder:
                    try:
                        holder[key] = copy.deepcopy(other_holder[other])
                    except (KeyError, IndexError):
                        holder[key] = value(draw)
            case 4 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
                holder[key] = holder[key] * draw.choice((-1, 0, 10, 1000, 10**6, 10**9))
            case _:
                holder[key] = value(draw)
    return tree


def _places(tree: Any) -> Any:
    stack = [tree]
    while stack:
        holder = stack.pop()
        if isinstance(holder, dict):
            yield from ((holder, key) for key in holder)
            stack += holder.values()
        elif isinstance(holder, list):
            yield from ((holder, key) for key in range(min(len(holder), 50)))
            stack += holder[:50]


def damaged_bytes(data: bytes, draw: Random) -> bytes:
    """Bytes that were cut, overwritten, repeated, or that have others between them."""
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        at, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        end = min(end, at + draw.choice((1, 2, 8, 64, 4096)))
        before, part, after = data[:at], data[at:end], data[end:]
        between = draw.choice(
            (
                b"",
                part * 2,
                draw.randbytes(draw.choice((1, 2, 8))),
                str(draw.choice(VALUES)).encode(errors="surrogatepass"),
                draw.choice((b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n")),
                part + draw.choice((b",", b":", b"\t", b'"', b"{", b"- ")),
            )
        )
        data = before if draw.random() < 0.1 else before + between + after
    return data
