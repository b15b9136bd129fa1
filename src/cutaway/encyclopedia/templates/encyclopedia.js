// Cards of a diagram, and the filter of the index. Pages are complete without it.

function cards(stage) {
  const panel = stage.querySelector(".panel");
  const letGo = stage.querySelector(".let-go");
  const links = [...stage.querySelectorAll("a.part")];
  let pinned = null;

  const cardOf = (key) => document.getElementById(`part-${key}`);

  function show(key) {
    for (const card of panel.querySelectorAll(".card.shown")) card.classList.remove("shown");
    for (const link of links) link.classList.toggle("pointed", link.dataset.part === key);
    panel.classList.toggle("busy", key !== null);
    if (key !== null) cardOf(key).classList.add("shown");
  }

  function pin(key) {
    pinned = pinned === key ? null : key;
    for (const link of links) {
      const here = link.dataset.part === pinned;
      link.classList.toggle("pinned", here);
      if (here) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    letGo.hidden = pinned === null;
    show(pinned);
  }

  for (const link of links) {
    const key = link.dataset.part;
    link.addEventListener("pointerenter", () => pinned || show(key));
    link.addEventListener("pointerleave", () => pinned || show(null));
    link.addEventListener("focus", () => pinned || show(key));
    link.addEventListener("blur", () => pinned || show(null));
    link.addEventListener("click", (event) => {
      event.preventDefault();
      pin(key);
    });
  }
  letGo.addEventListener("click", () => pin(pinned));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (pinned) pin(pinned);
    else show(null);
  });

  // A link from another page names a card; one whose part this family lacks has no place in the drawing.
  function follow() {
    const hash = decodeURIComponent(location.hash);
    const key = hash.startsWith("#part-") ? hash.slice("#part-".length) : null;
    if (key === null || key === pinned || !cardOf(key)) return;
    pin(key);
    (links.find((link) => link.dataset.part === key) ?? stage).scrollIntoView({ block: "center" });
  }
  addEventListener("hashchange", follow);
  follow();
}

function filter(form) {
  const families = [...document.querySelectorAll("[data-family]")];
  const chips = [...form.querySelectorAll(".chip")];
  const search = form.querySelector("input");
  const reset = form.querySelector("[type=reset]");
  const nothing = document.querySelector(".nothing");

  // A family may be shown twice, as a card and as a row; what is said of it in one is found in both.
  const said = new Map();
  for (const family of families) {
    const { words = "" } = family.dataset;
    said.set(family.dataset.family, `${said.get(family.dataset.family) ?? ""} ${words} ${family.textContent}`.toLowerCase());
  }

  function apply() {
    const wanted = new Map();
    for (const chip of chips.filter((one) => one.getAttribute("aria-pressed") === "true")) {
      const { trait, value } = chip.dataset;
      wanted.set(trait, [...(wanted.get(trait) ?? []), `${trait}=${value};`]);
    }
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = new Set();
    for (const family of families) {
      const traits = family.dataset.traits;
      const text = said.get(family.dataset.family);
      const fits =
        [...wanted.values()].every((any) => any.some((one) => `;${traits}`.includes(`;${one}`))) &&
        words.every((word) => text.includes(word));
      family.hidden = !fits;
      if (fits) shown.add(family.dataset.family);
    }
    const { one, many } = form.dataset;
    form.querySelector("#count").textContent = shown.size === 1 ? `1 ${one}` : `${shown.size} ${many}`;
    nothing.hidden = shown.size > 0;
    reset.hidden = wanted.size === 0 && words.length === 0;
  }

  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", chip.getAttribute("aria-pressed") === "true" ? "false" : "true");
      apply();
    });
  }
  search.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    for (const chip of chips) chip.setAttribute("aria-pressed", "false");
    search.value = "";
    search.focus();
    apply();
  });
  apply();
}

// On paper nothing can be opened any more.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("main details")) details.open = true;
});

for (const stage of document.querySelectorAll(".stage")) cards(stage);
for (const form of document.querySelectorAll("form.filter")) filter(form);
