// Explorers in notebooks: sliders here, answers made in Python.

function addSliders(model, room, said) {
  room.replaceChildren(...model.get("controls").map(({ name, label, words, place }) => {
    const told = make("output", {}, words[place]);
    const slider = make("input", { type: "range", min: 0, max: words.length - 1, step: 1, value: place, "aria-label": label, "aria-valuetext": words[place], "data-name": name });
    slider.disabled = words.length < 2;
    slider.addEventListener("input", () => {
      told.textContent = words[slider.value];
      slider.setAttribute("aria-valuetext", words[slider.value]);
    });
    slider.addEventListener("change", () => {
      said.textContent = "asking …";
      model.set("places", { ...model.get("places"), [name]: Number(slider.value) });
      model.save_changes();
    });
    return make("label", {}, make("span", {}, label), told, slider);
  }));
}

function render({ model, el }) {
  const sliders = make("div", { class: "tp-sliders" });
  const said = make("p", { class: "tp-note", "aria-live": "polite" });
  const room = make("div", { class: "tp-answer" });
  const root = make("div", { class: "tp-root tp-widget" }, sliders, said, room);
  // JupyterLab takes arrow keys and Enter for its cells, unless the very element that has the focus says not to.
  root.addEventListener("focusin", (event) => event.target.setAttribute("data-lm-suppress-shortcuts", "true"));
  el.replaceChildren(root);
  const unfollow = followTheme(el, root);
  const bytes = model.get("layouter");
  const layouter = bytes && bytes.byteLength ? new Layouter(new Uint8Array(bytes.buffer ? bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) : bytes)) : null;
  const control = () => {
    const focused = el.getRootNode().activeElement; // the document's own is what holds the shadow that this may be in
    const name = sliders.contains(focused) ? focused.dataset.name : null;
    addSliders(model, sliders, said);
    if (name) sliders.querySelector(`[data-name="${CSS.escape(name)}"]`)?.focus();
  };
  const tell = () => { said.textContent = model.get("said"); };
  const answer = () => {
    const { html, data } = model.get("answer");
    room.innerHTML = html;
    if (data && layouter) explore(room, data, layouter);
  };
  const watched = { "change:controls": control, "change:said": tell, "change:answer": answer };
  for (const [name, react] of Object.entries(watched)) {
    model.on(name, react);
    react();
  }
  return () => {
    for (const [name, react] of Object.entries(watched)) model.off(name, react);
    unfollow();
    if (layouter) layouter.stop();
  };
}

export default { render };
