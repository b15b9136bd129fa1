"""Every still picture: that it draws what it is given, in colours that mean something, and leaves nothing behind."""

from __future__ import annotations

import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest

from cutaway import pictures
from cutaway.errors import InputError
from cutaway.pictures.labels import token_labels
from cutaway.pictures.theme import THEMES, diverging, readable_on, sequential


def every_picture(causal, tokens, theme="light"):
    n = len(tokens)
    rng = np.random.default_rng(1)
    streams = rng.normal(size=(4, n, 8))
    streams[2:, 0, 3] = -700
    return {
        "head": pictures.attention_head(causal(n, n), tokens, theme=theme),
        "layer": pictures.attention_layer(causal(6, n, n), tokens, theme=theme),
        "grid": pictures.attention_grid(causal(2, 3, n, n), tokens, theme=theme),
        "norms": pictures.stream_norms(streams, tokens, theme=theme),
        "lens": pictures.lens_table([tokens] * 3, rng.uniform(size=(3, n)), tokens, theme=theme),
        "next": pictures.next_token_bars(tokens, np.full(n, 1 / n), prompt="a\n$b", theme=theme),
        "patching": pictures.patching_heatmap(rng.normal(size=(4, n)), tokens, theme=theme),
        "vector": pictures.rotated_vector(rng.normal(size=16), theme=theme),
        "tables": pictures.rotary_heatmap(theme=theme),
        "curve": pictures.relative_position_curve(64, query=rng.normal(size=48), theme=theme),
    }


def texts(picture):
    """Every text in a picture."""
    return [
        text.get_text().replace("\n", " ")
        for text in picture.figure.findobj(matplotlib.text.Text)
        if text.get_visible()
    ]


def images(picture):
    return [image for axes in picture.figure.axes for image in axes.images]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_picture_renders_whatever_the_tokens_hold(causal, nasty, theme):
    for picture in every_picture(causal, nasty, theme).values():
        if theme == "light":
            assert picture.to_png(50).startswith(b"\x89PNG")
        else:
            ET.fromstring(picture.to_svg())
        assert picture.description


def test_saving_gives_the_same_file_every_time(causal, prompt, tmp_path):
    first, second = (every_picture(causal, prompt[:5]) for _ in range(2))
    for name, picture in first.items():
        for suffix in (".svg", ".png"):
            one, two = picture.save(tmp_path / f"1{suffix}", dpi=40), second[name].save(tmp_path / f"2{suffix}", dpi=40)
            assert one.read_bytes() == two.read_bytes(), name
        assert "dc:date" not in (tmp_path / "1.svg").read_text()


def test_a_wrong_suffix_is_refused(tmp_path):
    still = pictures.rotary_heatmap()
    page = pictures.attention_viewer(np.ones((1, 1, 1, 1)), ["a"])
    with pytest.raises(InputError, match=r"\.png or \.svg.*'\.pdf'; save it as 'x\.png'"):
        still.save(tmp_path / "x.pdf")
    with pytest.raises(InputError, match="no suffix"):
        still.save(tmp_path / "x")
    with pytest.raises(InputError, match=r"\.html.*'\.png'"):
        page.save(tmp_path / "x.png")
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_open_and_no_setting_changed(causal, prompt):
    import matplotlib.pyplot as plt

    with matplotlib.rc_context({"figure.facecolor": "pink", "text.usetex": False, "axes.titlesize": 31}):
        before = dict(matplotlib.rcParams)
        drawn = every_picture(causal, prompt)["head"].to_png(60)
        assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == []
    assert drawn == every_picture(causal, prompt)["head"].to_png(60), "the user's settings show in the picture"


def test_a_notebook_is_shown_one_thing(causal, prompt):
    still = every_picture(causal, prompt)["head"]
    page = pictures.attention_viewer(causal(1, 1, 11, 11), prompt)
    assert not hasattr(still, "_repr_html_")
    assert not hasattr(still, "_repr_svg_")
    assert still._repr_png_().startswith(b"\x89PNG")
    assert not hasattr(page, "_repr_png_")
    assert page._repr_html_().startswith("<iframe")
    assert "<script" not in page._repr_html_()


def test_probabilities_run_from_0_to_1_and_signed_values_around_0(causal, prompt):
    drawn = every_picture(causal, prompt)
    for name in ("head", "layer", "grid", "lens"):
        assert {image.get_clim() for image in images(drawn[name])} == {(0, 1)}
    low, high = images(drawn["patching"])[0].get_clim()
    assert low == -high
    assert {image.get_clim() for image in images(drawn["tables"])} == {(-1, 1)}


def test_the_pattern_is_drawn_as_given_and_the_future_masked(causal, prompt):
    weights = causal(11, 11)
    shown = images(pictures.attention_head(weights, prompt))[0].get_array()
    np.testing.assert_array_equal(shown.data, weights)
    np.testing.assert_array_equal(shown.mask, np.triu(np.ones((11, 11), bool), 1))
    both_ways = np.full((3, 3), 1 / 3)
    assert not images(pictures.attention_head(both_ways, ["a", "b", "c"]))[0].get_array().mask.any()


def test_queries_of_a_cache_are_the_last_tokens(causal, prompt):
    picture = pictures.attention_head(causal(2, 11), prompt)
    axes = picture.figure.axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["return", "·x"]
    assert len(axes.get_xticklabels()) == 11


def test_queries_of_a_cache_may_look_at_all_that_came_before_them(causal, prompt):
    weights = causal(3, 11)
    shown = images(pictures.attention_head(weights, prompt))[0].get_array()
    np.testing.assert_array_equal(shown.data, weights)
    np.testing.assert_array_equal(shown.mask, [[key > 8 + query for key in range(11)] for query in range(3)])
    whole = images(pictures.attention_layer(causal(2, 3, 11), prompt))[0].get_array()
    np.testing.assert_array_equal(whole.mask, shown.mask)


def test_labels_along_a_pattern_are_those_of_the_tokens(causal, prompt):
    axes = pictures.attention_head(causal(11, 11), prompt).figure.axes[0]
    assert [t.get_text() for t in axes.get_xticklabels()] == token_labels(prompt)
    assert [t.get_text() for t in axes.get_yticklabels()] == token_labels(prompt)


@pytest.mark.parametrize("count", [1, 3, 24, 48, 90, 130, 512])
def test_labels_do_not_collide_and_stay_on_the_sheet(causal, count):
    tokens = [f" token{i}"[: 2 + i % 7] for i in range(count)]
    figure = pictures.attention_head(causal(count, count), tokens).figure
    figure.set_dpi(72)
    figure.canvas.draw()
    axes, sheet = figure.axes[0], figure.bbox
    for texts_, along in ((axes.get_yticklabels(), 1), (axes.get_xticklabels(), 0)):
        boxes = sorted((t.get_window_extent() for t in texts_), key=lambda box: box.p0[along])
        for one, two in itertools.pairwise(boxes):
            # Boxes hold the room for strokes that reach up and down; letters keep clear well inside.
            overlap = one.p1[along] - two.p0[along]
            assert overlap < 0.35 * (one.p1 - one.p0)[along]
        for box in boxes:
            assert sheet.x0 <= box.x0
            assert box.x1 <= sheet.x1
            assert sheet.y0 <= box.y0
            assert box.y1 <= sheet.y1


def test_a_long_prompt_says_what_is_left_out(causal):
    tokens = ["x"] * 300
    grid = pictures.attention_grid(causal(1, 2, 300, 300), tokens)
    assert any("heaviest of" in text for text in texts(grid))
    assert any("8th token is labelled" in text for text in texts(pictures.attention_layer(causal(2, 300, 300), tokens)))
    lens = pictures.lens_table([tokens], np.ones((1, 300)), tokens)
    assert any("the last 60 of 300" in text for text in texts(lens))


def test_a_pooled_pattern_keeps_its_heaviest_weights(causal):
    weights = np.zeros((1, 1, 300, 300), np.float32)
    weights[..., np.arange(300), 0] = 0.25
    weights[..., 299, 150] = 1
    shown = images(pictures.attention_grid(weights, ["x"] * 300))[0].get_array()
    assert shown.shape[0] < 300
    assert shown.max() == 1
    assert (shown[:, 0] == 0.25).all()


def test_dollar_signs_stay_dollar_signs():
    picture = pictures.attention_head([[1.0]], ["$x$"], title="$y^2$ of head")
    assert "$x$" in texts(picture)
    assert not any(t.get_parse_math() for t in picture.figure.findobj(matplotlib.text.Text) if "$" in t.get_text())


def test_the_large_entry_at_position_0_is_told_and_drawn(causal, prompt):
    picture = every_picture(causal, prompt)["norms"]
    assert "position 0 (def)" in picture.description
    heat, _, curves = picture.figure.axes[0], picture.figure.axes[1], picture.figure.axes[2]
    assert heat.images[0].norm.__class__.__name__ == "LogNorm"
    first = next(line for line in curves.lines if line.get_label() == "position 0")
    assert max(first.get_xdata()) > 699


def test_norms_may_be_given_as_they_are(prompt):
    streams = np.random.default_rng(0).normal(size=(3, 11, 5))
    norms = np.sqrt((streams**2).sum(-1))
    assert pictures.stream_norms(streams, prompt).to_png(40) == pictures.stream_norms(norms, prompt).to_png(40)


def test_bars_are_the_likeliest_in_order_and_the_rest():
    picture = pictures.next_token_bars(["a", "b", "c", "d"], [0.1, 0.5, 0.2, 0.05], most=2)
    widths = [patch.get_width() for patch in picture.figure.axes[0].patches]
    assert widths == pytest.approx([0.5, 0.2, 0.3])
    assert picture.description == "b 50%, c 20%; all others together 30%."


def test_a_lens_cell_is_bold_where_its_token_comes():
    picture = pictures.lens_table([[" y", "q"]], [[0.9, 0.1]], ["x", " y"])
    weights = {t.get_text(): t.get_fontweight() for t in picture.figure.axes[0].texts}
    assert weights == {"·y": "bold", "q": "normal"}


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_arrows_point_where_the_rotary_turns_them(pairing):
    vector = np.array([1.0, 2.0, 3.0, 4.0, 9.0])
    picture = pictures.rotated_vector(vector, [0, 1, 63, 2000], rotary_dims=4, pairs=[0, 1], pairing=pairing)
    partners = {"half": [(0, 2), (1, 3)], "interleaved": [(0, 1), (2, 3)]}[pairing]
    for pair, axes in enumerate(picture.figure.axes):
        number = complex(*vector[list(partners[pair])])
        tips = [a.xy for a in axes.texts if getattr(a, "arrow_patch", None) is not None]
        expected = [number * np.exp(1j * m * 10_000 ** (-pair / 2)) for m in (0, 1, 63, 2000)]
        np.testing.assert_allclose([complex(*tip) for tip in tips], expected, rtol=1e-9)


def test_the_tables_are_those_of_the_paper():
    cos, sin = images(pictures.rotary_heatmap(4, 64))
    np.testing.assert_allclose(cos.get_array()[1, :4], [0.540, 0.732, 0.846, 0.912], atol=6e-4)
    np.testing.assert_allclose(sin.get_array()[3, :4], [0.141, 0.778, 0.993, 0.954], atol=6e-4)


def test_the_curve_is_the_product_of_turned_vectors():
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 12))
    picture = pictures.relative_position_curve([0, 1, 63, 2000], rotary_dims=8, query=q, key=k)
    line = next(line for line in picture.figure.axes[0].lines if len(line.get_xdata()) == 4)

    def turned(vector, position):
        angles = position * 10_000.0 ** (-np.arange(4) / 4)
        pairs = (vector[:4] + 1j * vector[4:8]) * np.exp(1j * angles)
        return np.concatenate([pairs.real, pairs.imag, vector[8:]])

    expected = [turned(q, 5 + distance) @ turned(k, 5) for distance in (0, 1, 63, 2000)]
    np.testing.assert_allclose(line.get_ydata(), expected, atol=1e-9)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_scales_are_safe_for_colour_blind_readers(theme):
    """Lightness alone orders probabilities, and tells the size of signed values on either side of 0."""
    steps = np.linspace(0, 1, 64)

    def lightness(colours):
        return np.array([np.dot(rgb[:3], [0.2126, 0.7152, 0.0722]) for rgb in colours])

    probability = np.diff(lightness(sequential(theme)(steps)))
    assert (probability < 0).all() or (probability > 0).all()
    signed = np.diff(lightness(diverging(theme)(steps)))
    towards, away = (1, -1) if theme.name == "light" else (-1, 1)
    assert (np.sign(signed[:31]) == towards).all()
    assert (np.sign(signed[32:]) == away).all()


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_text_stands_out_from_its_ground(theme):
    def contrast(a, b):
        return (max(a, b) + 0.05) / (min(a, b) + 0.05)

    def luminance(colour):
        rgb = np.array(matplotlib.colors.to_rgb(colour))
        return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    for ground in (theme.paper, theme.beyond):
        for colour in (theme.ink, theme.muted):
            assert contrast(luminance(colour), luminance(ground)) >= 4.5
    for step in np.linspace(0, 1, 33):
        cell = sequential(theme)(step)
        assert contrast(luminance(readable_on(cell)), luminance(cell)) >= 4.5


def test_importing_is_light_and_drawing_never_loads_torch():
    code = (
        "import sys, cutaway.pictures as p; assert not {'torch', 'matplotlib', 'jinja2'} & set(sys.modules);"
        "p.attention_head([[1.0]], ['a']).to_svg(); p.attention_viewer([[[[1.0]]]], ['a']);"
        "assert 'torch' not in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
