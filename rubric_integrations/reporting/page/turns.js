/* The turns of a conversation or of an agent's run: who, the text, and the calls, whose arguments and results are folded. */
const FIRST_TURNS = 3, LAST_TURNS = 5, MOST_TURNS = 40, MORE_TURNS = 100, MOST_CITED = 50;
/* A long text that is folded shows its beginning. */
const MOST_LINES = 12, MOST_FOLDED = 1000;
const foldable = (body, words) => {
  if (words.length <= MOST_FOLDED && words.split("\n", MOST_LINES + 1).length <= MOST_LINES) return [body];
  const fold = (isFolded) => {
    body.classList.toggle("folded", isFolded);
    unfold.setAttribute("aria-expanded", String(!isFolded));
    unfold.textContent = isFolded ? "show all" : "show less";
  };
  const unfold = make("button", { type: "button", class: "unfold", onclick: () => fold(!body.classList.contains("folded")) });
  fold(true);
  return [body, unfold];
};
/* An element with a text to read, as Markdown or as its source. `place` names it for the marks of quotations. */
const readsSource = { value: false };
const readable = (words, place = "") => {
  const rendered = markdown(words);
  const body = make("div", { "data-text": place });
  body.isMarkdown = Boolean(rendered);
  body.read = () => {
    const isSource = !rendered || readsSource.value;
    body.classList.toggle("source", isSource);
    body.classList.toggle("read", !isSource);
    body.replaceChildren(...(isSource ? visible(words) : rendered));
  };
  body.read();
  return body;
};
const sourceButton = () => make("button", { type: "button", class: "turn-source", "aria-pressed": String(readsSource.value), onclick: () => toggleSource() }, "source");
const toggleSource = () => {
  readsSource.value = !readsSource.value;
  for (const body of document.querySelectorAll("[data-text]")) body.read?.();
  for (const button of document.querySelectorAll(".turn-source")) button.setAttribute("aria-pressed", String(readsSource.value));
  findQuotes(quoted);
};

/* Many calls may be opened together: the quotations in them are marked once. */
let marking = 0;
const markQuotesSoon = () => { cancelAnimationFrame(marking); marking = requestAnimationFrame(() => findQuotes(quoted)); };
const failedTag = () => make("span", { class: "tag failure" }, "! failed");
const showCall = ([name, args, result, failed]) => {
  const parts = [["arguments", args], ["result", result]].filter(([, words]) => words !== null);
  const summary = make("summary", {}, "calls ", make("b", {}, ...visible(name)), failed ? " " : null, failed ? failedTag() : null, make("small", {}, " ", ...visible((args || "").slice(0, 120))));
  const details = make("details", { class: "call" }, summary);
  /* The texts may be long: they are made when somebody opens the call. */
  const fill = () => {
    if (details.childElementCount > 1) return;
    details.append(...parts.flatMap(([title, words]) => [make("small", {}, title), make("pre", { tabindex: "0", "aria-label": title, "data-text": "" }, ...visible(words))]), ...(parts.length ? [] : ["Neither arguments nor a result are recorded."]));
  };
  details.addEventListener("toggle", () => { if (details.open) { fill(); markQuotesSoon(); } });
  details.unfold = (isOpen) => { if (isOpen) fill(); details.open = isOpen; };
  return details;
};
/* One step as a turn. */
const turnOf = ([role, who, words, calls], number, { id, citing = [], isNumbered = true }) => {
  const back = (name) => (event) => { const row = event.currentTarget.closest("article")?.querySelector(`tr[data-criterion="${CSS.escape(name)}"]`); row?.scrollIntoView({ block: "center" }); row?.querySelector("button")?.focus(); };
  /* A result without its call has no other mark of a failure. */
  const isFailed = calls.some(([, , , failed]) => failed) || (role === "tool" && words.startsWith("[error]\n"));
  return make("li", { id, class: "step " + role + (citing.length ? " cited" : ""), tabindex: "-1", "data-step": number, "aria-label": "step " + number },
    make("p", { class: "author" }, isNumbered ? make("span", { class: "number" }, number + ".") : null, isNumbered ? " " : null, make("b", {}, role), who ? " " : null, who ? make("bdi", {}, ...visible(who)) : null,
      ...(isFailed ? [" ", failedTag()] : []),
      ...citing.flatMap((name) => [" ", make("button", { type: "button", class: "citing", onclick: back(name) }, "cited: " + name)])),
    ...(words ? foldable(readable(words), words) : []), ...calls.map(showCall));
};
/* A list of turns. Of a long one, the first, the last and the cited turns are made, and the others when they are wanted.
   `handed` is the text that the judge read in their place. `ids` is the beginning of their ids, empty for none. */
const turnsOf = (title, steps, { handed = null, ids = "", runs = "", cited = new Map(), isNumbered = true } = {}) => {
  const made = new Map();
  const isShort = steps.length <= MOST_TURNS;
  const chosen = new Set(steps.map((_, at) => at).filter((at) => isShort || at < FIRST_TURNS || at >= steps.length - LAST_TURNS));
  for (const number of [...cited.keys()].slice(0, MOST_CITED)) if (steps[number - 1]) chosen.add(number - 1);
  const list = make("ol", { class: "steps" });
  const turnAt = (at) => { if (!made.has(at)) made.set(at, turnOf(steps[at], at + 1, { id: ids ? ids + (at + 1) : null, citing: cited.get(at + 1), isNumbered })); return made.get(at); };
  const gap = (from, to) => {
    const words = (from + 1 === to ? "step " + to : "steps " + (from + 1) + " to " + to) + ": show" + (to - from > MORE_TURNS ? " the next " + MORE_TURNS : "");
    const more = () => { for (let at = from; at < Math.min(to, from + MORE_TURNS); at++) chosen.add(at); draw(); findQuotes(quoted); turnAt(from).focus(); };
    return make("li", { class: "gap" }, make("button", { type: "button", onclick: more }, words));
  };
  const draw = () => {
    const items = [];
    for (let at = 0; at < steps.length; at++) {
      if (chosen.has(at)) { items.push(turnAt(at)); continue; }
      const from = at;
      while (at + 1 < steps.length && !chosen.has(at + 1)) at++;
      items.push(gap(from, at + 1));
    }
    list.replaceChildren(...items);
  };
  const section = make("section", { class: "text turns", "aria-label": title, "data-runs": runs });
  section.reveal = (number) => {
    chosen.add(number - 1);
    draw();
    if (list.hidden) asHanded();
    const turn = turnAt(number - 1);
    for (const call of turn.querySelectorAll("details")) call.unfold(true);
    turn.scrollIntoView({ block: "center" });
    turn.focus({ preventScroll: true });
  };
  /* On paper, nothing can be opened: the turns up to a bound are made, with their calls. */
  section.print = (isPrinted) => {
    if (isPrinted) section.before = [new Set(chosen), [...list.querySelectorAll("details[open]")]];
    const [shownBefore, openBefore] = section.before;
    if (isPrinted) { for (let at = 0; at < Math.min(steps.length, PRINTED); at++) chosen.add(at); } else for (const at of [...chosen]) if (!shownBefore.has(at)) chosen.delete(at);
    draw();
    for (const call of list.querySelectorAll("details")) call.unfold(isPrinted || openBefore.includes(call));
  };
  let source = null;
  const asHanded = () => {
    source ||= make("div", { class: "source", tabindex: "0", "aria-label": title + " as the judge read it" }, ...visible(handed));
    const isHanded = !list.hidden;
    list.hidden = isHanded;
    button.setAttribute("aria-pressed", String(isHanded));
    if (isHanded) section.append(source); else source.remove();
  };
  const button = make("button", { type: "button", class: "handed", "aria-pressed": "false", onclick: () => asHanded() }, "as the judge read it");
  draw();
  section.append(make("h3", {}, title, " ", make("small", {}, number(steps.length, isNumbered ? "step" : "turn")), " ", sourceButton(), ...(handed === null ? [] : [" ", button])), list);
  return section;
};
/* The keyboard goes from turn to turn; a gap counts as one. */
const nextStep = (by) => {
  const turns = [...$("one").querySelectorAll(".steps:not([hidden]) > li")];
  const at = turns.indexOf(document.activeElement.closest(".steps > li"));
  const turn = turns[at < 0 && by < 0 ? turns.length - 1 : at + by];
  (turn?.querySelector(":scope > button") || turn)?.focus();
};
