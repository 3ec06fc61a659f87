/* The view for labelling: the drawn judgments one after another, without the judge's answers. */
function labellingView({ data, load, make, $, store, textsOf, titleOf, linkOf, changed, save }) {
  const queue = data.queue.map(([row, question, sampled]) => ({ row: data.rows[row], criterion: data.questions[question], sampled }));
  const labelOf = (item) => store.own(item.row, item.criterion);
  const labelled = () => queue.filter(labelOf).length;
  const notes = new Map(); /* notes on judgments that have no answer yet */
  /* An answer counts only for the judgment that is shown: the texts of the next one may still be unpacked. */
  let at = null, openings = 0, shown = null;
  let changing = null; /* the judgment whose label may be replaced: a key alone never replaces one */
  let hasGuidelines = true; /* whether the rater left them open */

  const say = (words) => { $("label-status").textContent = words; };
  const key = (name) => make("kbd", { "aria-hidden": "true" }, name);
  const button = (words, shortcut, shown, onclick) => make("button", { type: "button", "aria-keyshortcuts": shortcut, onclick }, key(shown), " ", words);
  const move = (to) => { changing = null; at = Math.max(0, Math.min(to, queue.length)); show(); };
  /* To the next judgment without a label, or to the end. */
  const next = () => { const to = queue.findIndex((item, place) => place > at && !labelOf(item)); move(to < 0 ? queue.length : to); };
  const isFixed = (item) => Boolean(labelOf(item)) && changing !== item;
  const change = () => { const item = queue[at]; if (item && shown === item && isFixed(item)) { changing = item; show(); say("Choose the answer that replaces " + labelOf(item).verdict + "."); } };
  const answer = (verdict) => {
    const item = queue[at];
    if (!item || shown !== item || !verdict) return;
    const before = labelOf(item);
    if (isFixed(item)) { say("You have answered " + before.verdict + ". Press c to change it."); return; }
    /* An answer that stays the same stays blind. */
    const blind = before?.verdict === verdict ? before.blind : !store.hasSeen(item.row);
    store.set(item.row, item.criterion, { verdict, reason: before?.reason || notes.get(item) || "", sampled: item.sampled, blind });
    changed();
    say(verdict + " recorded. " + labelled() + " of " + queue.length + " labelled.");
    next();
  };
  const note = (item, words) => {
    notes.set(item, words);
    const label = labelOf(item);
    if (label) { store.set(item.row, item.criterion, { ...label, reason: words }); changed(); }
  };
  const leave = (event) => { if (["Enter", "Escape"].includes(event.key)) { event.preventDefault(); event.stopPropagation(); event.target.blur(); $("label").focus(); } };

  const askName = () => {
    const input = make("input", { id: "label-rater", required: "", autocomplete: "name", size: "24" });
    const begin = (event) => { event.preventDefault(); if (input.value.trim()) { store.setRater(input.value); at = null; changed(); show(); } };
    $("label-question").replaceChildren(
      make("h2", { id: "label-title" }, queue.length + " judgments to label"),
      make("p", {}, "You see what was graded and one criterion after another, and not what the judge answered: who sees it tends to agree with it. Your answers stay in this browser until you export them."),
      make("dl", { class: "meanings" }, ...[
        ["MET", "The response does what the criterion says, fully. Where the page asks \u201cDoes this error occur?\u201d, MET means that the error occurs: the criterion is a penalty."],
        ["UNMET", "It does not, or only in part; of an error: the response does not make it."],
        ["CANNOT_ASSESS", "What is shown is not enough to tell, or the criterion does not apply. If the response simply lacks what is required, the answer is UNMET."],
      ].flatMap(([name, words]) => [make("dt", {}, name), make("dd", {}, words)])),
      make("form", { class: "choices", onsubmit: begin }, make("label", { for: "label-rater" }, "Your name, which each of your labels carries", input), make("button", {}, "Begin")));
    $("label-texts").replaceChildren();
    input.focus();
  };

  const choices = (item, chosen) => {
    const { answers, range, typed } = item.criterion;
    const isOffered = answers.some(([verdict]) => verdict === chosen);
    const disabled = isFixed(item) ? "" : null;
    const input = make("input", { id: "label-typed", size: "14", autocomplete: "off", inputmode: range ? "decimal" : null, "aria-describedby": "label-problem", disabled, onkeydown: (event) => { if (event.key === "Escape") leave(event); } });
    input.value = chosen && !isOffered ? chosen : "";
    const submit = (event) => {
      event.preventDefault();
      if (!input.value.trim()) return;
      const { verdict, problem } = readAnswer(input.value, { range });
      if (problem) { $("label-problem").textContent = problem; input.select(); } else answer(verdict);
    };
    return [
      chosen ? make("p", { class: "fixed" }, "You have answered ", make("b", {}, chosen), ". ", disabled === null ? "Choose the answer that replaces it." : button("change", "c", "c", change)) : null,
      make("div", { role: "group", "aria-labelledby": "label-words", class: "answers-offered" }, ...answers.map(([verdict, meaning, name]) =>
        make("button", { type: "button", class: "choice", "aria-pressed": String(chosen === verdict), "aria-keyshortcuts": name || null, disabled, onclick: () => answer(verdict) }, name ? key(name) : null, " ", make("b", {}, verdict), meaning ? make("span", {}, meaning) : null))),
      /* Not each number has a button, and a run of an earlier version does not have the options. */
      typed || !answers.length ? make("form", { class: "typed", onsubmit: submit },
        make("label", { for: "label-typed" }, range ? "another number (t)" : "your answer (t), or CANNOT_ASSESS", input), make("button", { disabled }, "Answer"), make("span", { id: "label-problem", role: "alert" })) : null,
    ];
  };

  const guidelinesOf = ({ criterion: { guidelines } }) => {
    if (!guidelines) return [];
    const details = make("details", { class: "guidelines", open: hasGuidelines ? "" : null }, make("summary", {}, "Guidelines for all criteria"), make("pre", { tabindex: "0" }, guidelines));
    details.addEventListener("toggle", () => { hasGuidelines = details.open; });
    return [details];
  };

  const showItem = async (item) => {
    const number = ++openings, place = at;
    const texts = await load(item.row);
    if (number !== openings) return;
    const label = labelOf(item);
    const input = make("input", { id: "label-note", autocomplete: "off", onkeydown: leave, oninput: () => note(item, input.value) });
    input.value = label?.reason || notes.get(item) || "";
    $("label-question").replaceChildren(
      make("h2", { id: "label-title" }, "Judgment " + (place + 1) + " of " + queue.length, make("small", {}, " " + titleOf(item.row))),
      make("progress", { max: queue.length, value: labelled(), "aria-label": "labelled" }), make("small", {}, " " + labelled() + " of " + queue.length + " labelled by " + store.rater),
      ...guidelinesOf(item),
      make("p", { id: "label-words" }, make("b", {}, item.criterion.words), " ", make("small", {}, item.criterion.name), make("span", { class: "words" }, item.criterion.requirement)),
      ...item.criterion.texts.flatMap(([heading, words]) => words.length > 300 ? [make("b", {}, heading), make("pre", { tabindex: "0", "aria-label": heading }, words)] : [make("p", { class: "more" }, make("b", {}, heading + ": "), words)]),
      ...item.criterion.numbers.split("\n").filter(Boolean).map((words) => make("p", { class: "more" }, words)),
      ...choices(item, label?.verdict).filter(Boolean),
      make("div", { class: "choices" }, make("label", { for: "label-note" }, "note (n)", input),
        button(isFixed(item) ? "next" : "skip", "s", "s", next), button("back", "Backspace", "\u2190", () => move(at - 1)), button("export", "e", "e", save)));
    const explored = exploredText(texts.grades?.[last]);
    $("label-texts").replaceChildren(...(explored ? [make("p", { class: "more" }, explored.trim())] : []), ...textsOf(texts));
    shown = item;
    scrollTo(0, 0);
    $("label").focus();
  };

  const showEnd = async () => {
    const number = ++openings;
    const open = queue.filter((item) => !labelOf(item));
    const differing = [];
    if (!open.length)
      for (const item of queue) {
        const { criteria } = await load(item.row);
        if (number !== openings) return;
        const judged = criteria.find(({ name, requirement }) => name === item.criterion.name && requirement === item.criterion.requirement)?.answers[0];
        const label = labelOf(item);
        if (judged?.verdict !== label.verdict) differing.push(make("li", {}, make("a", { href: linkOf(item.row) }, titleOf(item.row)), ", " + item.criterion.name + ": you " + label.verdict + ", the judge " + (judged?.verdict ?? "nothing")));
      }
    /* Whoever reads what the judge answered elsewhere is no longer blind. */
    if (!open.length) queue.forEach((item) => store.see(item.row));
    $("label-question").replaceChildren(
      make("h2", { id: "label-title" }, open.length ? open.length + " of " + queue.length + " are not labelled yet" : "All " + queue.length + " are labelled"),
      make("div", { class: "choices" }, open.length ? button("label the rest", "r", "r", () => move(queue.indexOf(open[0]))) : null, button("back", "Backspace", "\u2190", () => move(at - 1)), button("export", "e", "e", save)),
      ...(open.length ? [] : [make("p", {}, "You and the judge differ on " + differing.length + " of " + queue.length + ". Change an answer only if it was a mistake: from now on, it is not blind."), make("ul", {}, ...differing)]));
    $("label-texts").replaceChildren();
    $("label").focus();
  };

  function show() {
    shown = null;
    if (!store.rater) { askName(); return; }
    if (at === null) at = queue.findIndex((item) => !labelOf(item));
    if (at < 0) at = queue.length;
    if (at < queue.length) showItem(queue[at]);
    else showEnd();
  }

  addEventListener("keydown", (event) => {
    if ($("label").hidden || !store.rater || event.target.closest("input, textarea, select") || event.altKey || event.ctrlKey || event.metaKey || event.repeat) return;
    const item = queue[at];
    const offered = item?.criterion.answers.find(([, , name]) => name === event.key);
    const act = offered ? () => answer(offered[0]) : {
      n: () => $("label-note")?.focus(), t: () => $("label-typed")?.focus(), s: next, e: save, c: change,
      r: () => $("label-question").querySelector("[aria-keyshortcuts='r']")?.click(),
      Backspace: () => move(at - 1), ArrowLeft: () => move(at - 1), ArrowRight: () => move(at + 1),
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  return { show };
}
