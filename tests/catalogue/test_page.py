"""How the page is written, and read back."""

from __future__ import annotations

from catalogue import page


def test_a_page_is_read_as_it_was_written() -> None:
    held = {"held": 2, "tried": 2, "differs": [], "untried": []}
    nothing = {"held": 0, "tried": 0, "differs": [], "untried": ["there is | none"]}
    kind = {"what": "attention and MLP", "layers": [0, 1], "sum": "layer_input + mlp_output", "no_sum": None}
    row = {
        "name": "a",
        "class": "AForCausalLM",
        "images": False,
        "state": "opened",
        "family": "a",
        "derived": True,
        "measured": True,
        "layers": [kind],
        "taken_off": [{"claim": "the lens", "layers": [], "why": "they differ\nby 3"}],
        "counts": {"names": 5, "places": 9},
        "oracles": {name: nothing if name == "edits" else held for name in page.HOLDS},
    }
    refused = {"name": "b", "class": "BForCausalLM", "images": True, "state": "refused", "reason": "it is none"}
    text = page.written([row, refused], {"torch": "2"})
    rows, totals = page.parsed(text)
    oracles = len(page.HOLDS)
    assert rows["AForCausalLM"] == [
        "derived",
        "attention and MLP",
        "5",
        "exact",
        "the lens",
        f"{oracles - 1} of {oracles - 1}",
    ]
    assert rows["BForCausalLM"][0] == "refused"
    assert totals["opened"] == (1, 0)
    assert totals["classes in the mapping"] == (1, 1)
    assert "they differ by 3" in text
    assert "it is none" in text
    assert "there is | none (`AForCausalLM`)" in text
