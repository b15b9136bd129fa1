"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { labels, layers, offset, causal } = data;
  const count = labels.length;
  const LISTED = 8;
  const LABELLED = 64;
  const LEAST_LABELLED_CELL = 8;

  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;
  const form = $("controls");
  const spans = [...$("tokens").querySelectorAll("[role=option]")];
  const thumbnails = [...document.querySelectorAll(".head canvas")];
  const canvas = $("pattern");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");

  // `pointed` is where the pointer or the keyboard is; a pinned token is shown in its stead.
  const state = { layer: data.layer, head: data.head, incoming: false, pointed: count - 1, pinned: null, key: null };
  let weights = new Uint8Array(count * count);
  let tile = document.createElement("canvas");

  const active = () => state.pinned ?? state.pointed;
  const place = (i) => offset + i;
  const weightOf = (byte) => (byte / 255) ** 2;
  const byteAt = (query, key) => weights[query * count + key];
  const shownByte = (i) => (state.incoming ? byteAt(i, active()) : byteAt(active(), i));
  const mayLook = (query, key) => !causal || key <= query;
  const written = (w) => (w >= 0.995 ? "1.00" : w === 0 ? "0" : w < 0.001 ? "<0.001" : w.toFixed(w < 0.1 ? 3 : 2));

  // ---- colours: one for each of the 256 bytes

  const isDark = () => (root.dataset.theme === "auto" ? systemDark.matches : root.dataset.theme === "dark");
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const linear = (c) => (c <= 10 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  let palette = null;

  function choosePalette() {
    const look = data.colours[isDark() ? "dark" : "light"];
    const stops = look.stops.map(rgb);
    const brighten = form.elements.brighten.checked;
    const inks = ["#000000", "#ffffff"].map((hex) => [hex, luminance(rgb(hex))]);
    const table = new Uint8Array(256 * 3);
    const styles = [];
    for (let byte = 0; byte < 256; byte++) {
      const at = (brighten ? byte / 255 : weightOf(byte)) * (stops.length - 1);
      const low = Math.min(Math.floor(at), stops.length - 2);
      const colour = stops[low].map((c, i) => Math.round(c + (stops[low + 1][i] - c) * (at - low)));
      table.set(colour, byte * 3);
      const own = luminance(colour);
      const ink = contrast(inks[0][1], own) >= contrast(inks[1][1], own) ? inks[0][0] : inks[1][0];
      styles.push({ background: `rgb(${colour.join()})`, ink });
    }
    palette = { table, styles, beyond: rgb(look.beyond) };
    const gradient = look.stops.map((hex, i) => {
      const part = i / (look.stops.length - 1);
      return `${hex} ${100 * (brighten ? part ** 2 : part)}%`;
    });
    $("scale").style.background = `linear-gradient(90deg, ${gradient.join()})`;
  }

  // ---- the weights: each head is unpacked when it is first shown

  const unpacked = new Map();
  const KEPT_BYTES = 64e6;

  async function unpack(layer, head) {
    const name = `${layer}.${head}`;
    if (!unpacked.has(name)) {
      const packed = Uint8Array.from(atob(layers[layer][head]), (c) => c.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
      unpacked.set(name, new Uint8Array(await new Response(stream).arrayBuffer()));
      if (unpacked.size * count * count > KEPT_BYTES) unpacked.delete(unpacked.keys().next().value);
    }
    return unpacked.get(name) ?? unpack(layer, head);
  }

  // A pattern as an image of at most `most` points a side, each the heaviest of the weights that fall on it.
  function painted(bytes, most) {
    const side = Math.min(count, most);
    const heaviest = new Int16Array(side * side).fill(-1);
    for (let query = 0; query < count; query++) {
      const row = Math.floor((query * side) / count);
      const end = causal ? query + 1 : count;
      for (let key = 0; key < end; key++) {
        const at = row * side + Math.floor((key * side) / count);
        const byte = bytes[query * count + key];
        if (byte > heaviest[at]) heaviest[at] = byte;
      }
    }
    const image = new ImageData(side, side);
    for (let i = 0; i < heaviest.length; i++) {
      const byte = heaviest[i];
      const colour = byte < 0 ? palette.beyond : palette.table.subarray(byte * 3, byte * 3 + 3);
      image.data.set(colour, i * 4);
      image.data[i * 4 + 3] = 255;
    }
    const result = document.createElement("canvas");
    result.width = result.height = side;
    result.getContext("2d").putImageData(image, 0, 0);
    return result;
  }

  // ---- the text

  function paintTokens() {
    const token = active();
    spans.forEach((span, i) => {
      const allowed = state.incoming ? mayLook(i, token) : mayLook(token, i);
      const style = allowed ? palette.styles[shownByte(i)] : { background: "", ink: "" };
      span.style.backgroundColor = style.background;
      span.style.color = style.ink;
      span.classList.toggle("later", !allowed);
      span.classList.toggle("active", i === token);
      span.setAttribute("aria-selected", String(i === state.pinned));
      span.tabIndex = i === state.pointed ? 0 : -1;
    });
  }

  function heaviestFirst() {
    const seen = Array.from({ length: count }, (_, i) => [i, shownByte(i)]).filter(([, byte]) => byte > 0);
    return seen.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  }

  function paintTable() {
    const token = active();
    const order = heaviestFirst();
    const verb = state.incoming ? " is looked at by" : " looks at";
    const name = document.createElement("b");
    name.textContent = labels[token];
    const pinned = state.pinned === null ? "" : " (pinned)";
    $("weights-heading").replaceChildren(`${place(token)} `, name, `${verb}${pinned}`);
    const rows = order.slice(0, LISTED).map(([i, byte]) => row(place(i), labels[i], weightOf(byte), ""));
    const rest = order.slice(LISTED);
    if (rest.length) {
      const sum = rest.reduce((total, [, byte]) => total + weightOf(byte), 0);
      rows.push(row("", `${rest.length} more, together`, sum, "rest"));
    }
    if (!order.length) rows.push(row("", "nothing", 0, "rest"));
    $("weights").replaceChildren(...rows);
  }

  function row(number, label, weight, kind) {
    const line = document.createElement("tr");
    const [first, second, third] = ["place", "token", "weight"].map((name) => {
      const cell = line.insertCell();
      cell.className = `${name} ${kind}`;
      return cell;
    });
    first.textContent = number;
    second.textContent = second.title = label;
    const bar = document.createElement("i");
    bar.style.width = `${Math.min(100, 100 * weight)}%`;
    const figure = document.createElement("span");
    figure.textContent = written(weight);
    const box = document.createElement("div");
    box.append(bar, figure);
    third.append(box);
    return line;
  }

  // ---- the matrix

  let geometry = { left: 0, size: 1 };

  function measure() {
    const width = canvas.clientWidth;
    const ratio = window.devicePixelRatio || 1;
    const context = canvas.getContext("2d");
    let gutter = 0;
    if (count <= LABELLED) {
      context.font = labelFont(12);
      const longest = Math.max(...labels.map((label) => context.measureText(clipped(label)).width));
      gutter = Math.min(Math.ceil(longest) + 8, Math.floor(width * 0.3));
      if ((width - gutter) / count < LEAST_LABELLED_CELL) gutter = 0;
    }
    const size = width - gutter;
    geometry = { left: gutter, size };
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((size + gutter) * ratio);
    canvas.style.height = `${size + gutter}px`;
    tile = painted(weights, Math.max(64, Math.floor(size * ratio)));
  }

  const labelFont = (size) => `${size}px ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace`;
  const clipped = (label) => (label.length > 14 ? `${label.slice(0, 13)}…` : label);

  function paintMatrix() {
    const ratio = window.devicePixelRatio || 1;
    const context = canvas.getContext("2d");
    const { left, size } = geometry;
    const cell = size / count;
    const token = active();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(tile, left, 0, size, size);
    if (left) paintLabels(context, left, size, cell, token);
    const style = getComputedStyle(root);
    context.strokeStyle = style.getPropertyValue("--hairline");
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, 0.5, size - 1, size - 1);
    context.strokeStyle = style.getPropertyValue("--contrast");
    context.lineWidth = Math.max(1, Math.min(2, cell));
    const thick = Math.max(cell, 2);
    const at = Math.min(token * cell, size - thick);
    if (state.incoming) context.strokeRect(left + at, 1, thick, size - 2);
    else context.strokeRect(left + 1, at, size - 2, thick);
    if (state.key !== null) {
      const key = Math.min(state.key * cell, size - thick);
      if (state.incoming) context.strokeRect(left + at, key, thick, thick);
      else context.strokeRect(left + key, at, thick, thick);
    }
  }

  function paintLabels(context, left, size, cell, token) {
    const type = Math.max(7, Math.min(12, cell * 0.82));
    const style = getComputedStyle(root);
    context.direction = "ltr";
    context.textAlign = "right";
    context.textBaseline = "middle";
    labels.forEach((label, i) => {
      context.fillStyle = style.getPropertyValue(i === token ? "--contrast" : "--ink");
      context.font = `${i === token ? "bold " : ""}${labelFont(type)}`;
      const middle = (i + 0.5) * cell;
      context.fillText(clipped(label), left - 5, middle, left - 6);
      context.save();
      context.translate(left + middle, size + 5);
      context.rotate(-Math.PI / 2);
      context.fillText(clipped(label), 0, 0, left - 6);
      context.restore();
    });
  }

  // ---- what a screen reader hears, once the pointer has come to rest

  let waiting = 0;

  function announce() {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const token = active();
      const said = (i) => spans[i].getAttribute("aria-label");
      const told = heaviestFirst().slice(0, 3).map(([i, byte]) => `${said(i)}, ${written(weightOf(byte))}`);
      const verb = state.incoming ? "is looked at by" : "looks at";
      const head = `layer ${state.layer}, head ${state.head}`;
      const pin = state.pinned === null ? "" : " Pinned.";
      $("announcement").textContent = `${said(token)} ${verb} ${told.join("; ") || "nothing"}. ${head}.${pin}`;
    }, 150);
  }

  // ---- drawing, at most once a frame

  let queued = false;

  function refresh() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      paintTokens();
      paintTable();
      paintMatrix();
      announce();
    });
  }

  let latest = 0;

  async function show() {
    const request = ++latest;
    const { layer, head } = state;
    const bytes = await unpack(layer, head);
    if (request !== latest) return;
    weights = bytes;
    $("pattern-heading").textContent = `Pattern of layer ${layer}, head ${head}`;
    measure();
    refresh();
    root.dataset.shown = `${layer}.${head}`;
    for (const [i, thumbnail] of thumbnails.entries()) {
      const other = await unpack(layer, i);
      if (request !== latest) return;
      const small = painted(other, thumbnail.width);
      const context = thumbnail.getContext("2d");
      context.imageSmoothingEnabled = false;
      context.drawImage(small, 0, 0, thumbnail.width, thumbnail.height);
    }
  }

  const guarded = (work) => work.catch((error) => {
    $("failure").textContent = `The weights could not be unpacked: ${error.message}. It takes a browser of 2023 or later.`;
    $("failure").hidden = false;
  });

  function point(token, key = null) {
    if (token === state.pointed && key === state.key) return;
    state.pointed = token;
    state.key = key;
    refresh();
  }

  function pin(token) {
    state.pinned = state.pinned === token ? null : token;
    state.pointed = token;
    refresh();
  }

  // ---- pointer and keyboard

  const tokenOf = (event) => spans.indexOf(event.target.closest?.("[role=option]"));

  $("tokens").addEventListener("pointerover", (event) => {
    const token = tokenOf(event);
    if (token >= 0) point(token);
  });
  $("tokens").addEventListener("focusin", (event) => {
    const token = tokenOf(event);
    if (token >= 0) point(token);
  });
  $("tokens").addEventListener("click", (event) => {
    const token = tokenOf(event);
    if (token >= 0) pin(token);
  });

  // The token on the next line above or below that stands nearest.
  function vertically(from, direction) {
    const here = spans[from].getBoundingClientRect();
    let best = from;
    let least = Infinity;
    let line = null;
    for (let i = from + direction; i >= 0 && i < count; i += direction) {
      const there = spans[i].getBoundingClientRect();
      const apart = (there.top - here.top) * direction;
      if (apart < here.height / 2) continue;
      line ??= there.top;
      if (Math.abs(there.top - line) > here.height / 2) break;
      const distance = Math.abs(there.left - here.left);
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  const MOVES = {
    ArrowRight: (i) => Math.min(i + 1, count - 1),
    ArrowLeft: (i) => Math.max(i - 1, 0),
    ArrowDown: (i) => vertically(i, 1),
    ArrowUp: (i) => vertically(i, -1),
    Home: () => 0,
    End: () => count - 1,
  };

  $("tokens").addEventListener("keydown", (event) => {
    const token = tokenOf(event);
    if (token < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key in MOVES) {
      spans[MOVES[event.key](token)].focus();
    } else if (event.key === "Enter" || event.key === " ") {
      pin(token);
    } else {
      return;
    }
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || state.pinned === null) return;
    state.pinned = null;
    refresh();
  });

  function cellOf(event) {
    const box = canvas.getBoundingClientRect();
    const index = (at) => Math.floor((at * count) / geometry.size);
    const [query, key] = [index(event.clientY - box.top), index(event.clientX - box.left - geometry.left)];
    return Math.min(query, key) >= 0 && Math.max(query, key) < count ? [query, key] : null;
  }

  canvas.addEventListener("pointermove", (event) => {
    const cell = cellOf(event);
    if (!cell) return;
    const [query, key] = cell;
    const weight = mayLook(query, key) ? written(weightOf(byteAt(query, key))) : "may not look there";
    $("cell").textContent = `${place(query)} ${labels[query]} → ${place(key)} ${labels[key]}: ${weight}`;
    if (state.pinned === null) point(state.incoming ? key : query, state.incoming ? query : key);
  });
  const resting = $("cell").textContent;
  canvas.addEventListener("pointerleave", () => {
    $("cell").textContent = resting;
    point(state.pointed);
  });
  canvas.addEventListener("click", (event) => {
    const cell = cellOf(event);
    if (cell) pin(cell[state.incoming ? 1 : 0]);
  });

  // ---- controls

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    const { name, value, checked } = event.target;
    if (name === "layer" || name === "head") {
      state[name] = Number(value);
      guarded(show());
    } else if (name === "direction") {
      state.incoming = value === "in";
      state.key = null;
      refresh();
    } else {
      if (name === "dark") root.dataset.theme = checked ? "dark" : "light";
      recolour();
    }
  });

  function recolour() {
    form.elements.dark.checked = isDark();
    choosePalette();
    guarded(show());
  }

  systemDark.addEventListener("change", recolour);
  let resizing = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => {
      measure();
      refresh();
    });
  });

  for (const box of document.querySelectorAll(".layers, .heads")) {
    box.scrollTop = box.querySelector("input:checked").parentElement.offsetTop - box.clientHeight / 2;
  }
  recolour();
})();
